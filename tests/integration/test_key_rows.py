"""The rows of keys and of who waits for them, one step at a time."""

from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_jobs.backends.base import ResultRecord, Settled
from django_jobs.backends.database import keys
from django_jobs.backends.database.claim import FEW, Claim
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.db.transactions import in_transition
from django_jobs.ids import new_id
from django_jobs.models import Job, JobKey, JobState
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db
DAY = 86_400 * SECOND
DONE = ResultRecord("succeeded")


def fetch(store, limit=9, queue="default"):
    return store.fetch([queue], limit, 30.0)


def unjudged(store, limit=1, queue="default"):
    """Leases of which nobody knows yet whether they may run."""
    terms = {"backend": "database", "limit": limit, "lease_seconds": 30.0}
    return Claim("default", store.clock, **terms).from_queue(queue)


def ids(leases):
    return [lease.id for lease in leases]


def states():
    return [JobState(state) for state in Job.objects.order_by("id").values_list("state", flat=True)]


def test_who_waits_looks_as_if_never_leased(backend):
    put(backend, 2, concurrency_key="disk")
    (other,) = put(backend, queue="another")
    (running,) = fetch(backend, queue="another")
    (first,) = fetch(backend, 2)
    columns = ("state", "blocked_by", "lease_token", "lease_expires", "worker", "deliveries")
    waiting = Job.objects.exclude(pk__in=[first.id, other])
    key = first.message.index["concurrency_key"]
    assert waiting.values_list(*columns).get() == (JobState.BLOCKED, key, None, None, None, 0)
    assert backend.ack([first, running]) == [Settled.SETTLED] * 2


def test_a_lease_that_was_lost_meanwhile_is_not_parked(backend):
    put(backend)
    (stale,) = fetch(backend)
    backend.nack(stale, 0)
    (current,) = fetch(backend)
    keys._block("default", "concurrency_key", [stale])
    assert backend.renew([current], 30.0) == [Settled.SETTLED]
    assert states() == [JobState.RUNNING]


def test_the_places_of_one_key_are_not_those_of_the_other(backend):
    put(backend, 2, concurrency_key="disk", concurrency=2, idempotency_key="once")
    assert len(fetch(backend)) == 1
    assert states() == [JobState.RUNNING, JobState.BLOCKED]


def test_a_key_that_nobody_got_a_place_by_is_remembered_a_day_as_well(backend, manual):
    keys.Keys("default", backend.clock, ["disk"])
    assert JobKey.objects.get().keep_until == manual.now() + DAY


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


def test_who_was_leased_and_not_admitted_yet_holds_a_place_for_others_and_not_for_itself(backend):
    put(backend, 2, concurrency_key="disk")
    mine, theirs = unjudged(backend), unjudged(backend)
    assert keys.admit("default", backend.clock, mine, 30.0) == []
    assert states() == [JobState.BLOCKED, JobState.RUNNING]
    (lease,) = keys.admit("default", backend.clock, theirs, 30.0)
    assert fetch(backend) == []
    backend.ack([lease])
    assert ids(fetch(backend)) == ids(mine)


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

    def next_one():
        return len(keys.admit("default", backend.clock, unjudged(backend), 30.0))

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


# ----------------------------------------------------------------------- at what cost

KINDS = [{"concurrency_key": "{}"}, {"idempotency_key": "{}"}]


def put_each(store, count, terms, **more):
    """Jobs with a key of their own."""
    for number in range(count):
        own = {name: text.format(number) for name, text in terms.items()}
        put(store, **own, **more)


def cost(queries):
    """How many statements there were about jobs and keys."""
    return sum("django_jobs_job" in query["sql"] for query in queries)


@pytest.mark.parametrize("terms", [*KINDS, KINDS[0] | KINDS[1]], ids=str)
def test_keys_cost_the_same_few_statements_however_many_jobs_there_are(backend, terms):
    counts = []
    for count in (FEW + 1, 300):  # of fewer no claim looks first how large they are
        put_each(backend, count, terms)
        with CaptureQueriesContext(connection) as fetching:
            leases = fetch(backend, count)
        with CaptureQueriesContext(connection) as acking:
            assert set(backend.ack(leases, dict.fromkeys(ids(leases), DONE))) == {Settled.SETTLED}
        assert len(leases) == count
        counts.append((cost(fetching), cost(acking)))
        JobKey.objects.all().delete()
    assert counts[0] == counts[1]
    assert max(counts[0]) <= 15


@pytest.mark.parametrize("terms", KINDS, ids=str)
def test_to_park_and_to_wake_costs_a_few_statements_for_many_keys(backend, terms):
    counts = []
    for count in (FEW + 1, 90):
        put_each(backend, count, terms)
        holders = fetch(backend, count)
        put_each(backend, count, terms)
        with CaptureQueriesContext(connection) as parking:
            assert fetch(backend, count) == []
        with CaptureQueriesContext(connection) as waking:
            backend.ack(holders)
        counts.append((cost(parking), cost(waking)))
        waiting = fetch(backend, count)
        assert len(waiting) == count
        backend.ack(waiting)
        JobKey.objects.all().delete()
    assert counts[0] == counts[1]
    assert max(counts[0]) <= 15


def test_who_waits_for_nobody_is_looked_for_in_no_settle(backend):
    put(backend, concurrency_key="disk")
    (lease,) = fetch(backend)
    with CaptureQueriesContext(connection) as queries:
        backend.ack([lease])
    assert not any("blocked_by" in query["sql"] for query in queries)


def test_no_step_parks_or_wakes_more_than_so_many(backend, monkeypatch):
    monkeypatch.setattr(keys, "AT_ONCE", 2)
    put(backend, 9, idempotency_key="once")
    (first,) = fetch(backend, 1)
    assert keys.admit("default", backend.clock, unjudged(backend), 30.0) == []
    assert states().count(JobState.BLOCKED) == 3
    assert fetch(backend) == []
    assert states().count(JobState.BLOCKED) == 8
    backend.ack([first])
    seen = 0
    while leases := fetch(backend):
        assert len(leases) == 2
        seen += len(leases)
        backend.ack(leases)
    assert seen == 8


@pytest.mark.parametrize("look", [1, 2, 5])
@pytest.mark.parametrize("places", [1, 3])
def test_of_every_line_the_first_ones_are_found_however_long_the_lines_are(
    backend, look, places, monkeypatch
):
    monkeypatch.setattr(keys, "LOOK", look)
    terms = {"concurrency_key": "disk", "concurrency": places}
    lengths = [1, 7, 2, 3, 1, 4, 5, 1]
    for number, length in enumerate(lengths):
        put(backend, length, queue=f"q{number}", **terms)
    (key,) = keys.keys_of(unjudged(backend, queue="q1"))
    Job.objects.update(state=JobState.BLOCKED, blocked_by=key)
    found = keys._lines("default", {key: places})
    for number, length in enumerate(lengths):
        line = Job.objects.filter(queue=f"q{number}").order_by("rank", "due", "id")
        first = [UUID(str(pk)) for pk, _ in found[key, f"q{number}"]]
        assert first[: places + 1] == list(line.values_list("pk", flat=True)[: places + 1])
        assert len(first) >= min(length, places + 1)


# ---------------------------------------------------------------------- lost and found


def test_who_is_put_off_by_a_breaker_passes_its_turn_on(backend, manual):
    put(backend, 2, concurrency_key="disk")
    off, parked = unjudged(backend), unjudged(backend)
    assert keys.admit("default", backend.clock, parked, 30.0) == []
    in_transition("default", lambda _: backend._breakers._put_off(off, manual.now() + 9 * SECOND))
    keys.wake("default", backend.clock, keys.keys_of(off))
    assert ids(fetch(backend)) == ids(parked)


def test_a_claim_that_is_given_back_passes_its_turns_on(backend):
    put(backend, concurrency_key="disk")
    (other,) = put(backend, queue="another", concurrency_key="disk")
    (lost,) = unjudged(backend)
    assert fetch(backend, queue="another") == []
    backend._unanswered.add([lost.token], 30.0)
    backend.return_unanswered()
    assert ids(fetch(backend, queue="another")) == [other]


def test_whoever_waits_in_another_queue_is_told_of(backend):
    told = []
    put(backend, concurrency_key="disk")
    put(backend, queue="another", concurrency_key="disk")
    (first,) = fetch(backend)
    assert fetch(backend, queue="another") == []
    backend._notify = told.extend
    backend.ack([first])
    assert told == ["another"]


def test_a_key_that_somebody_waits_for_is_not_swept(backend, manual):
    put(backend, 2, concurrency_key="disk")
    (first,) = fetch(backend, 1)
    assert fetch(backend) == []
    manual.advance(86_400 * 2)
    assert backend.renew([first], 30.0) == [Settled.SETTLED]
    assert keys.sweep("default", backend.clock, 9) == 0
    row = JobKey.objects.get()
    assert (row.places, row.keep_until) == (1, manual.now() + DAY)
    backend.ack([first])
    assert states() == [JobState.READY]


def test_a_key_that_was_swept_while_it_was_held_is_none_the_worse(backend):
    (first, second) = put(backend, 2, concurrency_key="disk")
    (lease,) = fetch(backend, 1)
    JobKey.objects.all().delete()
    assert fetch(backend) == []
    JobKey.objects.all().delete()
    backend.ack([lease])
    assert JobKey.objects.count() == 1
    backend.clean_up()
    assert ids(fetch(backend)) == [second]
    assert first == lease.id


def test_who_waits_for_no_key_that_could_be_told_is_let_go_on(backend):
    put(backend)
    Job.objects.update(state=JobState.BLOCKED)
    backend.clean_up()
    assert states() == [JobState.READY]


def test_more_than_one_step_of_keys_is_looked_after(backend, monkeypatch):
    monkeypatch.setattr(keys, "KEYS_PER_STEP", 1)
    put_each(backend, 3, KINDS[0])
    put_each(backend, 3, KINDS[0])
    assert len(fetch(backend)) == 3
    Job.objects.filter(state=JobState.RUNNING).delete()
    backend.clean_up()
    assert states() == [JobState.READY] * 3
