"""What workers delete by themselves: what is over, in bounded steps, and nothing else."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobs.backends.database import DatabaseBackend
from django_jobs.clock import from_datetime
from django_jobs.db import cleanup
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from django_jobs.worker.duties import Housekeeping
from testproject.shop.jobs import doomed

pytestmark = pytest.mark.django_db

LONG_AGO = timezone.now() - timedelta(days=40)
BACKLOG = 2500


def jobs_settings(settings, **changes):
    settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), **changes}


def dead_letters(count, failed_at=LONG_AGO, first=0):
    rows = [
        FailedJob(job_id=job_id(first + n), backend="database", queue="default", handler="a.b",
                  reason="exhausted", failed_at=failed_at)
        for n in range(count)
    ]  # fmt: skip
    FailedJob.objects.bulk_create(rows)
    attempts(range(first, first + count))


def attempts(numbers):
    rows = [
        JobAttempt(backend="database", job_id=job_id(n), number=1, outcome="failed",
                   started_at=LONG_AGO, finished_at=LONG_AGO)
        for n in numbers
    ]  # fmt: skip
    JobAttempt.objects.bulk_create(rows)


def job_id(n):
    return f"00000000-0000-7000-8000-{n:012x}"


def a_house():
    return Housekeeping(DatabaseBackend("database", {}), 30.0)


def tidy_until_done(house, most=50):
    """Steps that follow each other at once; how many rows each of them deleted."""
    gone = []
    for _ in range(most):
        before = rows()
        house.step()
        gone.append(before - rows())
        if house.seconds_left():
            return gone
    raise AssertionError(f"still at it after {most} steps")


def rows():
    return FailedJob.objects.count() + JobResult.objects.count()


def test_dead_letters_are_kept_for_ever_unless_the_settings_say_otherwise(monkeypatch):
    monkeypatch.setattr("django_jobs.worker.duties.CLEAN_UP_SECONDS", 0.0)
    dead_letters(2)
    tidy_until_done(a_house())
    assert (FailedJob.objects.count(), JobAttempt.objects.count()) == (2, 2)


def test_a_large_backlog_goes_in_bounded_steps_that_do_not_wait(settings, monkeypatch):
    monkeypatch.setattr("django_jobs.worker.duties.CLEAN_UP_SECONDS", 0.0)
    house = a_house()
    monkeypatch.setattr("django_jobs.worker.duties.CLEAN_UP_SECONDS", 300.0)
    jobs_settings(settings, DEAD_LETTER_TTL=timedelta(days=30))
    dead_letters(BACKLOG)
    dead_letters(1, failed_at=timezone.now() - timedelta(days=29), first=BACKLOG)
    gone = tidy_until_done(house)
    assert sum(gone) == BACKLOG
    assert max(gone) == 1000
    assert len(gone) == 3
    assert FailedJob.objects.get().job_id.int & 0xFFFFFFFFFFFF == BACKLOG
    assert [str(row.job_id) for row in JobAttempt.objects.all()] == [job_id(BACKLOG)]


def test_results_go_first_in_first_out_and_take_their_attempts_along():
    over = from_datetime(timezone.now()) - 1
    made = {"backend": "database", "queue": "default", "handler": "a.b", "status": "succeeded"}
    JobResult.objects.bulk_create(
        [JobResult(job_id=job_id(n), expires=over, **made) for n in range(BACKLOG)]
        + [JobResult(job_id=job_id(BACKLOG), expires=over + 10**12, **made)]
    )
    attempts(range(BACKLOG + 1))
    gone = tidy_until_done(a_house())
    assert (sum(gone), max(gone)) == (BACKLOG, 1000)
    assert JobAttempt.objects.get().job_id == JobResult.objects.get().job_id


def test_an_attempt_of_which_nothing_else_is_left_goes_and_others_stay():
    backend = DatabaseBackend("database", {})
    handle = doomed.enqueue()
    dead_letters(1, first=1)
    attempts([2, 3])
    JobAttempt.objects.create(
        backend="database", job_id=handle.id, number=1, outcome="failed",
        started_at=LONG_AGO, finished_at=LONG_AGO,
    )  # fmt: skip
    assert cleanup.Sweeper("default").sweep(backend.clock, 1000) == 2
    left = {str(row.job_id) for row in JobAttempt.objects.all()}
    assert left == {job_id(1), handle.id}
    assert Job.objects.filter(pk=handle.id).exists()


def test_attempts_that_stay_do_not_keep_the_sweeper_from_those_behind_them():
    dead_letters(5)
    attempts([7, 8])
    sweeper, clock = cleanup.Sweeper("default"), DatabaseBackend("database", {}).clock
    assert [sweeper.sweep(clock, 2) for _ in range(5)] == [0, 0, 1, 1, 0]
    assert JobAttempt.objects.count() == 5
