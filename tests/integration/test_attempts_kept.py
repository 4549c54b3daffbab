"""How many failed runs of one job are remembered."""

from __future__ import annotations

import pytest

from django_jobs import job
from django_jobs.backends.database import settle
from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob, JobAttempt, JobResult
from django_jobs.worker import process_once

RUNS = settle.ATTEMPTS_KEPT + 3


@job(key="tests.attempts.failing", max_retries=RUNS - 1, retry="none")
def failing():
    raise ValueError("again")


@pytest.mark.django_db
def test_a_job_that_fails_for_ever_keeps_its_latest_attempts():
    failing.enqueue()
    for _ in range(RUNS):
        assert process_once("default")
    kept = sorted(JobAttempt.objects.values_list("number", flat=True))
    assert kept == list(range(4, RUNS + 1))
    assert FailedJob.objects.get().attempts == RUNS


@pytest.mark.django_db
def test_housekeeping_drops_a_result_and_the_failed_runs_before_it():
    runs = []

    @job(key="tests.attempts.second_time", max_retries=1, retry="none", result_ttl=1)
    def second_time():
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("not yet")

    backend = backends["database"]
    second_time.enqueue()
    while process_once("default"):
        pass
    assert (JobResult.objects.count(), JobAttempt.objects.count()) == (1, 1)
    JobResult.objects.update(expires=1)
    assert backend.clean_up() == 1
    assert (JobResult.objects.count(), JobAttempt.objects.count()) == (0, 0)
