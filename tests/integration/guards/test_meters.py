"""What a rate limit has counted comes back when the job did not start after all."""

import time

import pytest

from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.rates import Rate
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND, ManualClock
from django_jobs.conf import get_settings
from django_jobs.models import JobAttempt, QueueMeter
from django_jobs.operations import queues
from django_jobs.outcome import Interrupted
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker import process_once
from django_jobs.worker.build import build_cycle
from django_jobs.worker.settle import Run, Settler
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db
SLOT_SECONDS = 0.005  # of a rate per second


class Busy(ManualClock):
    """The clock of a busy machine: between two looks at it a slot goes by."""

    def now(self):
        self.advance(1.2 * SLOT_SECONDS)
        return super().now()


def outgoing(count, **terms):
    return [make_outgoing(backend="database", **terms) for _ in range(count)]


def test_a_token_of_a_job_that_was_parked_comes_back_when_its_slot_is_over():
    backend = DatabaseBackend("database", {})
    backend.clock._clock = Busy()
    queues.limit_queue("default", {"rate_limit": "20/s"}, by="anna")
    backend.enqueue(outgoing(9, concurrency_key="disk", priority=9))
    backend.enqueue(outgoing(30))
    first = backend.fetch(["default"], 9, 30.0)
    assert len(first) == 1  # the other eight wait for its place
    assert len(first + backend.fetch(["default"], 40, 30.0)) == 20


def limited(rate="20/m", jobs=30):
    backend = DatabaseBackend("database", {})
    queues.limit_queue("default", {"rate_limit": rate}, by="anna")
    backend.enqueue(outgoing(jobs))
    return backend


def test_what_is_fetched_from_a_limited_queue_says_until_when_it_may_start():
    backend = limited()
    before = time.monotonic()
    (lease,) = backend.fetch(["default"], 1, 30.0)
    after = time.monotonic()
    late = Rate.parse("20/m").late / SECOND
    assert before + late <= lease.start_by <= after + late
    assert backend.rate_limited(["default", "other"]) == {"default"}
    queues.limit_queue("default", {"rate_limit": "none"}, by="anna")
    backend = DatabaseBackend("database", {})
    assert backend.rate_limited(["default", "other"]) == set()
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert lease.start_by is None


def test_what_was_given_back_and_not_begun_counts_as_no_start():
    backend = limited()
    leases = backend.fetch(["default"], 40, 30.0)
    assert len(leases) == 20
    assert backend.fetch(["default"], 1, 30.0) == []
    backend.nack_all(leases[:5])
    backend.return_starts(leases[:5])
    backend._closed.open("default")
    assert len(backend.fetch(["default"], 40, 30.0)) == 5


def test_where_jobs_were_too_late_to_start_the_next_may_start_later():
    backend = limited("20/s")
    (lease,) = backend.fetch(["default"], 1, 30.0)
    while not lease.is_late:
        time.sleep(0.01)
    backend.nack_all([lease])
    backend.return_starts([lease])
    before = time.monotonic()
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert lease.start_by >= before + 2 * Rate.parse("20/s").late / SECOND
    assert len(backend.fetch(["default"], 40, 30.0)) == 19  # the first one counts no longer


class Slow(DatabaseBackend):
    """Its claims are answered late."""

    seconds = 0.0

    def fetch(self, queues, limit, lease_seconds):
        leases = super().fetch(queues, limit, lease_seconds)
        time.sleep(self.seconds)
        return leases


SLOW = {
    "BACKENDS": {"database": {"BACKEND": f"{__name__}.Slow"}},
    "QUEUES": {"limited": {"RATE_LIMIT": "3/s"}},
}


@pytest.mark.parametrize("atomic", [False, True])
def test_a_job_whose_start_comes_too_late_is_not_run_and_its_start_not_counted(
    settings, tmp_path, atomic
):
    settings.DJANGO_JOBS = SLOW
    diary = tmp_path / "diary"
    handle = gang.note.using(queue="limited", atomic=atomic, timeout=5).enqueue(str(diary))
    backend = backends["database"]
    backend.seconds = 0.05
    (lease,) = backend.fetch(["limited"], 1, 30.0)
    report = build_cycle(backend, get_settings()).deliver(lease, 30.0)
    assert (report.status, handle.status) == ("requeued", "ready")
    assert not diary.exists()
    assert JobAttempt.objects.count() == 0
    assert QueueMeter.objects.get(queue="limited").starts["counts"] == {}
    backend.seconds = 0.0
    assert process_once("limited").status == "acked"
    assert sum(QueueMeter.objects.get(queue="limited").starts["counts"].values()) == 1


def test_a_process_that_lives_for_one_job_starts_it_where_claims_are_answered_late(
    settings, tmp_path
):
    settings.DJANGO_JOBS = SLOW
    diary = tmp_path / "diary"
    gang.note.using(queue="limited").enqueue(str(diary))
    backends["database"].seconds = 0.1
    report = process_once("limited")
    assert report.status == "acked"
    assert len(diary.read_text().splitlines()) == 1
    assert sum(QueueMeter.objects.get(queue="limited").starts["counts"].values()) == 1


def test_an_interrupted_run_has_started_and_counts(settings):
    settings.DJANGO_JOBS = {"QUEUES": {"limited": {"RATE_LIMIT": "3/s"}}}
    gang.note.using(queue="limited").enqueue("diary")
    backend = backends["database"]
    settler = Settler(backend, get_settings())
    for begun, counted in ((True, 1), (False, 1)):
        (lease,) = backend.fetch(["limited"], 1, 30.0)
        run = Run(lease, None, 0, 0, 0, 0)
        assert settler.settle(run, Interrupted("why", begun=begun)).status == "requeued"
        assert sum(QueueMeter.objects.get(queue="limited").starts["counts"].values()) == counted


def test_a_suspect_that_is_put_off_takes_no_start_each_time(settings):
    settings.DJANGO_JOBS = {"QUEUES": {"limited": {"RATE_LIMIT": "3/m"}}}
    backend = backends["database"]
    backend.clock._clock = clock = ManualClock()
    gang.note.using(queue="limited").enqueue("diary")
    settler = Settler(backend, get_settings())
    for _ in range(9):
        (lease,) = backend.fetch(["limited"], 1, 30.0)
        run = Run(lease, None, 0, 0, 0, 0)
        put_off = Interrupted("why", suspect=True, delay=0.1, begun=False)
        assert settler.settle(run, put_off).status == "requeued"
        clock.advance(0.2)
