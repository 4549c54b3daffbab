"""A row that somebody made ready before its signed time does not run early."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobs import job
from django_jobs.clock import SECOND
from django_jobs.models import Job, JobState
from django_jobs.worker import process_once

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
RUNS = []


@job(key="brought.forward")
def runs(word):
    RUNS.append(word)


@pytest.fixture(autouse=True)
def _fresh():
    RUNS.clear()


@pytest.mark.parametrize("changed", [{}, {"due": 0}], ids=["its due", "another due"])
def test_a_delay_is_waited_for_again(changed):
    handle = runs.using(delay=HOUR).enqueue("early")
    Job.objects.update(state=JobState.READY, **changed)
    assert [process_once().status for _ in range(2)] == ["snoozed", "empty"]
    assert (RUNS, handle.status) == ([], "scheduled")
    assert 3200 < Job.objects.get().due / SECOND - time.time() <= 3600


def test_a_moment_is_waited_for_again():
    handle = runs.using(run_at=timezone.now() + HOUR).enqueue("early")
    Job.objects.update(state=JobState.READY)
    assert [process_once().status for _ in range(2)] == ["snoozed", "empty"]
    assert (RUNS, handle.status) == ([], "scheduled")


def test_what_is_due_runs_at_its_time():
    runs.using(delay=0.2).enqueue("delay")
    runs.using(run_at=timezone.now() + timedelta(seconds=0.2)).enqueue("moment")
    until = time.monotonic() + 10
    while len(RUNS) < 2 and time.monotonic() < until:
        assert process_once().status in {"acked", "empty"}
    assert sorted(RUNS) == ["delay", "moment"]
