"""What operators set while several workers run: how soon it counts in all of them."""

import time

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from django_jobs import enqueue_many
from django_jobs.models import Job, JobState
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang_jobs

pytestmark = pytest.mark.django_db(transaction=True)
WORKERS = 3
JOBS = 600
GENEROUS_SECONDS = 5.0  # a second is promised where the machine is not busy
QUIET_SECONDS = 1.5


def jobs_queue(*arguments):
    call_command("jobs_queue", *arguments, verbosity=0)
    return time.monotonic()


@pytest.fixture
def workers(start, diary):
    """Workers that have nothing to do, because none of their jobs may run any more.

    Each has run some: a worker tells of itself before its child is there, and how long
    that takes on a busy machine is not what is measured here.
    """
    enqueue_many([gang_jobs.nap.prepare(str(diary), 0.05) for _ in range(JOBS)])
    for _ in range(WORKERS):
        start(processes=1, POLL_INTERVAL=1.0)  # as a site has it that sets none
    until(lambda: len(begun_by(diary)) == WORKERS, patience=60)
    jobs_queue("set", "default", "concurrency=0")
    last_begun(diary)


def begun_by(diary, since=0.0):
    """When each child began its first job after a moment."""
    first = {}
    for pid, word, at in diary.lines:
        if word == "nap-begins" and float(at) > since:
            first.setdefault(pid, float(at))
    return first


def last_begun(diary):
    """When the last job began, once none has for a while."""
    until(lambda: time.monotonic() - last(diary) > QUIET_SECONDS)
    return last(diary)


def last(diary):
    return max(float(at) for _, word, at in diary.lines if word == "nap-begins")


def test_limits_count_in_every_worker_within_a_second_loosened_or_tightened(workers, diary, capsys):
    at = jobs_queue("set", "default", "concurrency=none", "rate_limit=none")
    until(lambda: len(begun_by(diary, at)) == WORKERS)
    loosened = max(begun_by(diary, at).values()) - at
    at = jobs_queue("set", "default", "rate_limit=1/h")
    tightened = last_begun(diary) - at
    assert Job.objects.filter(state=JobState.READY).exists()
    ran = len(diary.words)
    at = jobs_queue("set", "default", "rate_limit=none", "concurrency=1")
    until(lambda: len(diary.words) > ran + 5)
    loosened_again = float(diary.lines[ran][2]) - at
    at = jobs_queue("set", "default", "concurrency=0")
    narrowed = last_begun(diary) - at
    assert Job.objects.filter(state=JobState.READY).exists()
    measured = [loosened, tightened, loosened_again, narrowed]
    with capsys.disabled():
        told = ", ".join(f"{seconds:.2f}" for seconds in measured)
        print(f"\n{connection.vendor}: in all {WORKERS} workers after {told} s")
    assert max(measured) < GENEROUS_SECONDS


def unclaimed():
    """What is ready, but for what a claim holds that began before and is not committed yet."""
    ready = Job.objects.filter(state=JobState.READY)
    with transaction.atomic():
        if connection.features.has_select_for_update_skip_locked:
            ready = ready.select_for_update(skip_locked=True)
        return set(ready.values_list("pk", "deliveries"))


def test_no_job_is_claimed_after_the_commit_of_a_pause(workers, diary):
    at = jobs_queue("set", "default", "concurrency=none")
    until(lambda: len(begun_by(diary, at)) == WORKERS)
    jobs_queue("pause", "default")
    left = unclaimed()
    assert left
    until(lambda: not Job.objects.filter(state=JobState.RUNNING).exists())
    last_begun(diary)
    # What had been claimed before may have come back unstarted; nothing else has changed.
    assert left <= set(Job.objects.filter(state=JobState.READY).values_list("pk", "deliveries"))
    ran = len(diary.words)
    jobs_queue("resume", "default")
    until(lambda: len(diary.words) > ran)
