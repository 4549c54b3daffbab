"""The rows of keys and of who waits for them, one step at a time."""

import pytest
from django.db import connection
from django.db.models import F

from django_jobs.backends.base import Settled
from django_jobs.backends.database import keys
from django_jobs.backends.database.claiming import Claim
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.ids import new_id
from django_jobs.models import Job, JobKey, JobState
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db
DAY = 86_400 * SECOND


def fetch(store, limit=9, queue="default"):
    return store.fetch([queue], limit, 30.0)


def ids(leases):
    return [lease.id for lease in leases]


def states():
    return [JobState(state) for state in Job.objects.order_by("id").values_list("state", flat=True)]


def test_who_waits_looks_as_if_never_leased(backend):
    put(backend, 2, concurrency_key="disk")
    (other,) = put(backend, queue="another")
    (running,) = fetch(backend, queue="another")
    (first,) = fetch(backend, 2)
    columns = ("state", "lease_token", "lease_expires", "worker", "fence", "deliveries")
    waiting = Job.objects.exclude(pk__in=[first.id, other])
    assert waiting.values_list(*columns).get() == (JobState.BLOCKED, None, None, None, None, 0)
    assert backend.ack([first, running]) == [Settled.SETTLED] * 2


def test_a_lease_that_was_lost_meanwhile_is_not_parked(backend):
    put(backend)
    (stale,) = fetch(backend)
    backend.nack(stale, 0)
    (current,) = fetch(backend)
    keys._park("default", [stale])
    assert backend.renew([current], 30.0) == [Settled.SETTLED]
    assert states() == [JobState.RUNNING]


def test_a_lease_that_was_lost_meanwhile_gets_no_fence(backend):
    put(backend, concurrency_key="disk")
    (stale,) = fetch(backend)
    backend.nack(stale, 0)
    keys.admit("default", backend.clock, [stale])
    assert Job.objects.get().fence is None


def test_the_places_of_one_key_are_not_those_of_the_other(backend):
    put(backend, 2, concurrency_key="disk", concurrency=2, idempotency_key="once")
    assert len(fetch(backend)) == 1
    assert states() == [JobState.RUNNING, JobState.BLOCKED]


def test_a_key_that_nobody_got_a_place_by_is_remembered_a_day_as_well(manual):
    rows = keys._locked("default", ["disk"], manual.now())
    assert rows["disk"].keep_until == manual.now() + DAY


def test_a_key_is_remembered_a_day_after_its_last_lease(backend, manual):
    put(backend, 2, concurrency_key="disk")
    (first,) = fetch(backend, 1)
    row = JobKey.objects.get()
    assert first.fence == row.fence == manual.now()
    assert row.keep_until == manual.now() + DAY
    backend.ack([first])
    (second,) = fetch(backend, 1)
    row = JobKey.objects.get()
    assert second.fence == row.fence == manual.now() + 1
    assert row.keep_until == manual.now() + 1 + DAY
    assert Job.objects.get().fence == second.fence


def test_one_fence_holds_for_all_keys_of_a_job_and_is_above_each(backend, manual):
    terms = {"concurrency_key": "disk", "idempotency_key": "once"}
    put(backend, 2, **terms)
    (first,) = fetch(backend, 1)
    backend.nack(first, 60.0)
    ahead = manual.now() + 1000
    disk, once = (first.message.index[name] for name in terms)
    JobKey.objects.filter(key=disk).update(fence=ahead, keep_until=ahead + 2 * DAY)
    (second,) = fetch(backend, 1)
    assert second.fence == ahead + 1
    told = {row.key: (row.fence, row.keep_until) for row in JobKey.objects.all()}
    assert told == {
        disk: (ahead + 1, ahead + 2 * DAY),
        once: (ahead + 1, ahead + 1 + DAY),
    }


def test_keys_are_swept_when_their_time_is_over_the_oldest_first(backend, manual):
    for key, before in (("new", 0), ("old", 5), ("older", 9), ("oldest", 10)):
        JobKey.objects.create(key=key, keep_until=manual.now() - before)
    assert keys.sweep("default", backend.clock, 2) == 2
    assert set(JobKey.objects.values_list("key", flat=True)) == {"new", "old"}
    assert keys.sweep("default", backend.clock, 2) == 1
    assert keys.sweep("default", backend.clock, 2) == 0
    assert set(JobKey.objects.values_list("key", flat=True)) == {"new"}


def test_work_is_done_for_as_long_as_the_site_says_and_no_longer(backend, manual, settings):
    settings.DJANGO_JOBS = {"IDEMPOTENCY_TTL": 7 * 86_400}
    (first,) = put(backend, idempotency_key="once")
    backend.ack(fetch(backend))
    ttl = get_settings().idempotency_ttl
    row = JobKey.objects.get()
    assert (str(row.done_by), row.keep_until) == (first, manual.now() + int(ttl * SECOND))
    put(backend, 2, idempotency_key="once")
    manual.advance(ttl - 0.000001)
    (lease,) = fetch(backend, 1)
    assert lease.done_by == first
    backend.ack([lease])
    assert str(JobKey.objects.get().done_by) == first
    manual.advance(0.000001)
    (lease,) = fetch(backend, 1)
    assert lease.done_by == ""
    assert JobKey.objects.get().done_by is None


def test_a_lease_that_ended_this_moment_holds_no_place(backend, manual):
    put(backend, concurrency_key="disk")
    (key,) = keys.keys_of(fetch(backend))
    assert keys._holders("default", key, manual.now() + 30 * SECOND - 1) == 1
    assert keys._holders("default", key, manual.now() + 30 * SECOND) == 0


def test_who_was_leased_and_not_admitted_yet_holds_no_place(backend, manual):
    put(backend, concurrency_key="disk")
    (key,) = keys.keys_of(fetch(backend))
    assert keys._holders("default", key, manual.now()) == 1
    Job.objects.update(fence=None)
    assert keys._holders("default", key, manual.now()) == 0


def test_who_needs_fewer_places_than_are_taken_waits_and_who_allows_more_does_not(backend):
    tight = {"concurrency_key": "disk", "concurrency": 1}
    loose = {"concurrency_key": "disk", "concurrency": 2}
    put(backend, **tight)
    (held,) = fetch(backend)
    put(backend, 2, **tight)
    put(backend, 2, **loose)
    assert len(fetch(backend, 1)) == 1
    assert states()[1:] == [JobState.BLOCKED] * 2 + [JobState.RUNNING, JobState.READY]
    assert fetch(backend, 9) == []
    assert states()[1:] == [JobState.BLOCKED] * 2 + [JobState.RUNNING, JobState.BLOCKED]
    backend.ack([held])
    assert states() == [JobState.BLOCKED] * 2 + [JobState.RUNNING, JobState.BLOCKED]


def test_all_who_wait_for_a_full_key_go_out_of_the_way_with_the_first(backend):
    put(backend, 4, concurrency_key="disk")
    put(backend, 4, idempotency_key="once")
    put(backend, concurrency_key="tape")
    terms = {"backend": "database", "limit": 1, "lease_seconds": 30.0}

    def next_one():
        leases = Claim("default", backend.clock, **terms).from_queue("default")
        return len(keys.admit("default", backend.clock, leases))

    assert [next_one(), next_one()] == [1, 0]
    assert states().count(JobState.BLOCKED) == 3
    assert [next_one(), next_one()] == [1, 0]
    assert states().count(JobState.BLOCKED) == 6
    assert [next_one(), next_one()] == [1, 0]


def test_as_many_are_woken_as_there_are_places_in_their_order(backend):
    terms = {"concurrency_key": "disk", "concurrency": 2}
    waiting = put(backend, 5, **terms)
    first, second = fetch(backend, 9)
    urgent = put(backend, priority=5, **terms)
    fetch(backend, 9)
    backend.ack([first])
    assert ids(fetch(backend, 9)) == urgent
    backend.ack([second])
    assert ids(fetch(backend, 9)) == waiting[2:3]


@pytest.mark.usefixtures("by_the_table")
def test_they_are_woken_by_due_and_then_by_id_wherever_they_lie(backend):
    put(backend, concurrency_key="disk")
    (holder,) = fetch(backend)
    first, second, third = (new_id() for _ in range(3))
    for job_id in (third, second, first):
        put(backend, identifier=job_id, concurrency_key="disk")
    assert fetch(backend) == []
    Job.objects.filter(pk=third).update(due=F("due") - 1)
    for expected in (third, first, second):
        backend.ack([holder])
        (holder,) = fetch(backend)
        assert holder.id == expected


def test_of_those_who_wait_to_do_the_work_once_one_is_woken_at_a_time(backend):
    waiting = put(backend, 3, idempotency_key="once")
    (first,) = fetch(backend, 9)
    backend.nack(first, 60.0)
    assert states().count(JobState.READY) == 1
    (second,) = fetch(backend, 9)
    assert second.id == waiting[1]
    backend.ack([second])
    assert ids(fetch(backend, 9)) == waiting[2:]


def test_nobody_is_woken_while_the_work_is_being_done(backend):
    put(backend, 2, idempotency_key="once")
    (lease,) = fetch(backend)
    keys.wake("default", backend.clock, keys.keys_of([lease]))
    assert states() == [JobState.RUNNING, JobState.BLOCKED]


def test_all_who_wait_are_woken_when_the_work_is_done(backend):
    put(backend, 4, idempotency_key="once")
    (lease,) = fetch(backend)
    backend.ack([lease])
    assert states() == [JobState.READY] * 3


def test_other_keys_wake_nobody(backend):
    put(backend, 2, concurrency_key="disk")
    put(backend, 2, concurrency_key="tape")
    put(backend, 2, idempotency_key="once")
    disk, tape, once = fetch(backend, 9)
    fetch(backend, 9)
    assert states().count(JobState.BLOCKED) == 3
    backend.ack([tape])
    assert states().count(JobState.BLOCKED) == 2
    (lease,) = fetch(backend, 9)
    assert lease.message.index["concurrency_key"] == tape.message.index["concurrency_key"]
    assert backend.ack([disk, once]) == [Settled.SETTLED] * 2


def test_all_who_wait_are_woken_by_a_late_ack_though_somebody_does_the_work_again(backend, manual):
    put(backend, 2, idempotency_key="once")
    (late,) = fetch(backend)
    manual.advance(31)
    put(backend, idempotency_key="once")
    assert len(fetch(backend)) == 1
    assert states() == [JobState.RUNNING, JobState.BLOCKED, JobState.RUNNING]
    assert backend.ack([late]) == [Settled.SETTLED]
    assert states() == [JobState.READY, JobState.RUNNING]


def test_who_was_woken_and_claimed_meanwhile_is_not_made_ready_again(backend):
    put(backend, 2, concurrency_key="disk")
    (gone,) = fetch(backend)
    Job.objects.filter(pk=gone.id).delete()
    assert states() == [JobState.BLOCKED]
    done = []

    def meanwhile(execute, sql, *rest):
        if sql.startswith("UPDATE") and not done:
            done.append(sql)
            Job.objects.update(state=JobState.RUNNING, lease_token="of another")
        return execute(sql, *rest)

    with connection.execute_wrapper(meanwhile):
        keys.wake("default", backend.clock, keys.keys_of([gone]))
    assert done
    assert states() == [JobState.RUNNING]
