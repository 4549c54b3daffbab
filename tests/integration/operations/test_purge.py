"""What is old is deleted, what lives is not."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobs.backends.base import AttemptRecord, Charge, ResultRecord
from django_jobs.backends.registry import backends
from django_jobs.clock import ManualClock
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, OperatorEvent
from django_jobs.operations.purge import purge, sweep_results
from testproject.shop.jobs import doomed, flaky, send_receipt
from tests.integration.operations.dying import die

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
RUN = {
    "outcome": "failed",
    "started_at": 1_700_000_000_000_000,
    "finished_at": 1_700_000_001_000_000,
}


def finish(prepared, *, retried=False, **record):
    """Let a job end well, after a failed run if asked."""
    handle = prepared.enqueue()
    backend = backends["database"]
    queue = backend.find(handle.id).queue
    if retried:
        (lease,) = backend.fetch([queue], 1, 30)
        backend.nack(lease, charge=Charge.ATTEMPT, attempt=AttemptRecord(number=1, **RUN))
    (lease,) = backend.fetch([queue], 1, 30)
    record = {"status": "succeeded", "finished_at": lease.expires_at, **record}
    backend.ack([lease], {lease.id: ResultRecord(**record)})
    return JobResult.objects.get(pk=handle.id)


def age_everything():
    past = timezone.now() - timedelta(days=3)
    JobResult.objects.update(finished_at=past, enqueued_at=past)
    FailedJob.objects.update(failed_at=past)
    JobAttempt.objects.update(finished_at=past)


def left():
    return (JobResult.objects.count(), FailedJob.objects.count(), JobAttempt.objects.count())


def one_of_each():
    """An old result and an old dead letter, each with an attempt, and an orphaned attempt."""
    finish(flaky.prepare(), retried=True)
    die()
    JobAttempt.objects.create(
        backend="database",
        job_id="00000000-0000-7000-8000-000000000000",
        number=1,
        outcome="failed",
        started_at=timezone.now(),
        finished_at=timezone.now(),
    )
    age_everything()
    assert left() == (1, 1, 3)


def a_live_job_with_an_old_attempt():
    doomed.using(queue="live").enqueue()
    (lease,) = backends["database"].fetch(["live"], 1, 30)
    attempt = AttemptRecord(number=1, **RUN)
    backends["database"].nack(lease, 60, charge=Charge.ATTEMPT, attempt=attempt)


@pytest.mark.parametrize(
    ("state", "counts", "remains"),
    [
        ("succeeded", (1, 0, 1), (0, 1, 2)),
        ("dead", (0, 1, 1), (1, 0, 2)),
        ("all", (1, 1, 3), (0, 0, 0)),
    ],
)
def test_deletes_what_is_old_in_the_state(state, counts, remains):
    one_of_each()
    for dry_run in (True, False):
        purged = purge(state=state, older_than=DAY, dry_run=dry_run)
        assert (purged.results, purged.dead_letters, purged.attempts) == counts
        assert left() == ((1, 1, 3) if dry_run else remains)


def test_never_touches_live_jobs_or_their_attempts():
    a_live_job_with_an_old_attempt()
    age_everything()
    assert purge(state="all", older_than=timedelta(0)).total == 0
    assert Job.objects.count() == JobAttempt.objects.count() == 1


def end_well():
    finish(flaky.prepare(), retried=True)


@pytest.mark.parametrize("state", ["succeeded", "dead", "all"])
@pytest.mark.parametrize("end", [end_well, die])
def test_attempts_of_a_job_that_lives_again_stay_whatever_its_end_left(state, end):
    end()
    a_live_job_with_an_old_attempt()
    live = Job.objects.get().pk
    JobResult.objects.update(job_id=live)
    FailedJob.objects.update(job_id=live)
    age_everything()
    without_a_job = 1 if state == "all" else 0  # the attempt of the end
    for dry_run in (True, False):
        purged = purge(state=state, older_than=DAY, dry_run=dry_run)
        assert purged.attempts == without_a_job
    assert JobAttempt.objects.filter(job_id=live).count() == 1


def test_keeps_what_is_young():
    finish(flaky.prepare(), retried=True)
    die()
    assert purge(state="all", older_than=DAY).total == 0
    assert left() == (1, 1, 2)


def test_keeps_to_a_queue():
    finish(doomed.prepare())
    finish(send_receipt.prepare(1))
    age_everything()
    assert purge(state="all", older_than=DAY, queue="mail").results == 1
    assert JobResult.objects.get().queue == "default"


def test_goes_through_batches_to_the_end():
    for _ in range(7):
        finish(doomed.prepare())
    age_everything()
    steps = []
    purged = purge(state="succeeded", older_than=DAY, batch=3, progress=steps.append)
    assert purged.results == 7
    assert steps == [3, 3, 1]
    assert left() == (0, 0, 0)


def test_is_on_record_unless_it_did_nothing():
    one_of_each()
    purge(state="all", older_than=DAY, dry_run=True)
    assert not OperatorEvent.objects.exists()
    purge(state="all", older_than=DAY, by="ada")
    purge(state="all", older_than=DAY, by="ada")
    event = OperatorEvent.objects.get()
    assert (event.action, event.actor) == ("purge", "ada")
    assert event.detail["dead_letters"] == 1


def test_refuses_a_state_it_does_not_know():
    with pytest.raises(ValueError, match="'live'"):
        purge(state="live", older_than=DAY)


def test_sweeping_goes_by_the_clock_of_the_store(monkeypatch):
    kept = finish(doomed.prepare(), ttl_seconds=1000)
    finish(flaky.prepare(), ttl_seconds=10, retried=True)
    finish(doomed.prepare(), ttl_seconds=20)
    clock = ManualClock(kept.expires - 900_000_000)
    monkeypatch.setattr(backends["database"].clock, "_clock", clock)
    assert sweep_results(1) == 1
    assert sweep_results(10) == 1
    assert sweep_results(10) == 0
    assert JobResult.objects.get() == kept
    assert not JobAttempt.objects.exists()
    clock.advance(901)
    assert sweep_results() == 1
