"""What is left of a lease that ended: nothing in its own row, and nothing in anybody else's."""

import pytest
from django.db import connections

from django_jobs.backends.base import AttemptRecord, Charge, Failure, Settled
from django_jobs.backends.crash_events import LOST_ALONE
from django_jobs.backends.database import DatabaseBackend, settle
from django_jobs.models import Job, JobAttempt, JobState
from django_jobs.telemetry import events
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db
OF_A_LEASE = ("lease_token", "lease_expires", "worker")


@pytest.fixture
def told():
    heard = []
    events.subscribe(heard.append)
    yield heard
    events.unsubscribe(heard.append)


def fetch(store, limit=9, queue="default"):
    return store.fetch([queue], limit, 30.0)


def lose(store, manual, *leases):
    manual.advance(30)
    assert store.reap_expired() == len(leases)


WAYS = {
    "nack": lambda store, lease, _manual: store.nack(lease),
    "later": lambda store, lease, _manual: store.nack(lease, 60.0),
    "nack_all": lambda store, lease, _manual: store.nack_all([lease]),
    "reap": lambda store, lease, manual: lose(store, manual, lease),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def returned(request, backend, manual):
    """Lets a job come back, one way or the other."""
    return lambda lease: request.param(backend, lease, manual)


def test_nothing_is_left_of_the_lease(backend, returned):
    put(backend, concurrency_key="disk")
    (lease,) = fetch(backend)
    assert all(Job.objects.values_list(*OF_A_LEASE).get())
    returned(lease)
    assert Job.objects.values_list(*OF_A_LEASE).get() == (None,) * 3


def test_it_settles_no_more(backend, returned):
    put(backend)
    (lease,) = fetch(backend)
    returned(lease)
    assert backend.ack([lease]) == [Settled.LOST]
    assert backend.renew([lease], 30.0) == [Settled.LOST]
    assert Job.objects.count() == 1


def test_its_place_is_free_for_whoever_waits_in_another_queue(backend, returned):
    put(backend, concurrency_key="disk")
    (other,) = put(backend, queue="another", concurrency_key="disk")
    (lease,) = fetch(backend)
    assert fetch(backend, queue="another") == []
    returned(lease)
    assert [lease.id for lease in fetch(backend, queue="another")] == [other]


def test_a_death_frees_a_place_as_well(backend):
    put(backend, concurrency_key="disk")
    (other,) = put(backend, queue="another", concurrency_key="disk")
    (lease,) = fetch(backend)
    assert fetch(backend, queue="another") == []
    assert backend.abandon(lease, Failure(reason="exhausted")) is Settled.SETTLED
    assert [lease.id for lease in fetch(backend, queue="another")] == [other]


@pytest.mark.parametrize(
    ("delay", "state"),
    [(None, JobState.READY), (0, JobState.READY), (0.0, JobState.READY), (1, JobState.SCHEDULED)],
)
def test_what_need_not_wait_is_ready_at_once(delay, state, backend):
    put(backend)
    (lease,) = fetch(backend)
    backend.nack(lease, delay)
    assert Job.objects.get().state == state


@pytest.mark.parametrize(
    ("delay", "charge", "suspect"),
    [
        (None, Charge.NOTHING, True),  # was never started
        (0, Charge.NOTHING, False),
        (None, Charge.ATTEMPT, False),
        (None, Charge.CRASH, True),
        (5, Charge.SUSPICION, True),
    ],
)
def test_a_suspect_is_one_until_it_ran_without_harm(delay, charge, suspect, backend):
    put(backend)
    (lease,) = fetch(backend)
    Job.objects.update(suspect=True)
    backend.nack(lease, delay, charge=charge)
    assert Job.objects.get().suspect is suspect


def run(number):
    return AttemptRecord(number=number, outcome="failed", started_at=1, finished_at=2)


def test_of_the_attempts_of_one_job_the_latest_hundred_are_kept(backend):
    put(backend, 2)
    first, second = fetch(backend)
    backend.nack(first, 60.0, attempt=run(1))
    backend.nack(second, 0, attempt=run(1))
    for number in (2, 100, 101, 102):
        (second,) = fetch(backend)
        backend.nack(second, 0, attempt=run(number))
    kept = JobAttempt.objects.order_by("number").values_list("number", flat=True)
    assert list(kept.filter(job_id=first.id)) == [1]
    assert list(kept.filter(job_id=second.id)) == [100, 101, 102]
    assert settle.ATTEMPTS_KEPT == 100


# ---------------------------------------------------------------------------------- reaping


@pytest.mark.parametrize("skips", [True, False])
def test_of_lost_jobs_the_longest_lost_return_first(skips, backend, manual, monkeypatch):
    features = connections["default"].features
    if not skips:
        monkeypatch.setattr(features, "has_select_for_update_skip_locked", False)
    if connections["default"].vendor == "postgresql":
        with connections["default"].cursor() as cursor:  # rows as they lie, unless asked for
            for way in ("indexscan", "indexonlyscan", "bitmapscan"):
                cursor.execute(f"SET LOCAL enable_{way} = off")
    put(backend, 2)
    late, early = fetch(backend)
    Job.objects.filter(pk=early.id).update(lease_expires=early.expires_at - 1)
    manual.advance(30)
    assert backend.reap_expired(limit=1) == 1
    assert backend.renew([late, early], 30.0) == [Settled.SETTLED, Settled.LOST]


def test_lost_jobs_of_another_backend_are_its_own_to_reap(backend, manual):
    another = DatabaseBackend("another", {})
    another.clock = backend.clock
    put(another, backend="another")
    assert len(fetch(another)) == 1
    manual.advance(31)
    assert backend.reap_expired() == 0
    assert another.reap_expired() == 1


@pytest.mark.parametrize("trace_id", ["", "5" * 32])
def test_who_is_charged_is_told_and_nobody_else(trace_id, backend, manual, told):
    put(backend, 2, trace_id=trace_id)
    first, second = fetch(backend)
    Job.objects.filter(pk=second.id).update(suspect=True, attempts=4, crashes=2)
    lose(backend, manual, first, second)
    (event,) = [event for event in told if isinstance(event, events.JobCrashed)]
    assert (event.job_id, event.queue, event.handler) == (second.id, "default", "tests.noop")
    assert (event.attempt, event.crashes) == (5, 3)
    assert event.trace_id == (trace_id or second.id.replace("-", ""))
    assert event.reason == LOST_ALONE
    assert list(Job.objects.order_by("crashes").values_list("crashes", flat=True)) == [0, 3]
