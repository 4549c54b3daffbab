"""A job whose workers die under it: free of charge at first, then charged, then dead."""

import os
import signal

import pytest

from django_jobs import enqueue_many
from django_jobs.backends.registry import backends
from django_jobs.clock import SystemClock, to_microseconds
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState
from django_jobs.worker.pool.shared_memory import LEAST_ISOLATED
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
LEASE = 3
WRECK = {"DJANGO_SETTINGS_MODULE": "tests.integration.worker.pool.wreck.settings"}


def lose_machine(pool):
    """Kill every process of a worker before any of them can say a word."""
    family = [pool.pid, *pool.family]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    pool.ended()
    until(lambda: not any(is_alive(pid) for pid in family), patience=3)


def charges(job_id):
    row = Job.objects.get(pk=job_id)
    return JobState(row.state).name, row.attempts, row.crashes, row.suspect


def test_a_job_that_is_lost_with_its_machine_again_and_again_dies_of_it(start, diary):
    deadly = gang.hold.using(max_crashes=2).enqueue(str(diary), str(diary.gate), "deadly")
    seen = []
    for runs in range(1, 4):
        pool = start(processes=2, environment=WRECK, LEASE_SECONDS=LEASE)
        until(lambda: diary.words.count("deadly-begins") == runs)  # noqa: B023 - used at once
        seen.append(charges(deadly.id))
        lose_machine(pool)
    assert seen == [
        ("RUNNING", 0, 0, False),
        ("RUNNING", 0, 0, True),  # the first loss may have been anybody's fault
        ("RUNNING", 0, 1, True),
    ]
    neighbour = gang.note.enqueue(str(diary), "neighbour")
    last = start(processes=2, environment=WRECK, LEASE_SECONDS=LEASE)
    dead = until(FailedJob.objects.first)
    assert str(dead.job_id) == deadly.id
    assert (dead.reason, dead.crashes, dead.attempts) == ("crashed", 2, 0)
    told = "its lease ended 2 times without a verdict while it was to run alone"
    assert dead.error_message == told
    assert dead.job_id != neighbour.id
    until(JobResult.objects.exists)
    pids = [pid for pid, word, _ in diary.lines if word == "deadly-begins"]
    assert len(set(pids)) == len(pids) == 3
    assert not any(is_alive(int(pid)) for pid in pids)
    until(lambda: "[job.dead]" in last.said)
    assert not Job.objects.exists()
    assert not JobAttempt.objects.exists()


@pytest.mark.parametrize("options", [(), ("--concurrency", "3")], ids=["alone", "beside"])
def test_a_machine_that_dies_is_charged_for_what_ran_and_not_for_what_it_held(
    start, diary, options
):
    enqueue_many([gang.hold.prepare(str(diary), str(diary.gate), f"n{n}") for n in range(25)])
    Job.objects.update(suspect=True)
    short = gang.note.using(priority=5)  # first, so that the worker looks ahead
    enqueue_many([short.prepare(str(diary)) for _ in range(100)])
    pool = start(*options, processes=1, environment=WRECK, LEASE_SECONDS=LEASE)
    places = LEAST_ISOLATED if options else 1
    begun = until(lambda: begins(diary) if len(begins(diary)) >= places else None)
    if options:
        until(lambda: put_off_for(0.3) == 25 - places)
    lose_machine(pool)  # at once: after half a second it would give back what it cannot begin
    held = Job.objects.filter(state=JobState.RUNNING)
    assert len(begins(diary)) == len(begun) == places

    def reaped():
        backends["database"].reap_expired()
        return not held.exists()

    until(reaped)
    charged = Job.objects.filter(crashes=1).count()
    assert (charged, Job.objects.filter(crashes=0).count()) == (places, 25 - places)


def put_off_for(seconds):
    """How many jobs no worker will claim for so long."""
    due = SystemClock().now() + to_microseconds(seconds)
    return Job.objects.filter(state=JobState.SCHEDULED, suspect=True, due__gt=due).count()


def begins(diary):
    return {word for word in diary.words if word.endswith("-begins")}


def suspects(prepared):
    """Jobs whose leases have ended once without a verdict."""
    handles = enqueue_many(prepared)
    Job.objects.filter(pk__in=[handle.id for handle in handles]).update(suspect=True)
    return handles


def test_suspects_that_take_long_keep_no_other_job_waiting(start, diary):
    hold = gang.hold.using(priority=9)  # in front of everything
    suspects([hold.prepare(str(diary), str(diary.gate), f"s{n}") for n in range(30)])
    pool = start("--concurrency", "3", processes=1)
    until(lambda: len(begins(diary)) == LEAST_ISOLATED)
    enqueue_many(gang.async_nap.prepare(str(diary), 0.0, f"quick{n}") for n in range(20))
    until(lambda: len({word for word in diary.words if word.startswith("quick")}) == 2 * 20)
    assert len(begins(diary) - {f"quick{n}-begins" for n in range(20)}) == LEAST_ISOLATED
    assert put_off_for(0.0) > 0
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 50)
    assert set(JobResult.objects.values_list("status", flat=True)) == {"succeeded"}
    alone = {pid for pid, word, _ in diary.lines if word.startswith("s")}
    assert alone.isdisjoint({pid for pid, word, _ in diary.lines if word.startswith("quick")})
    assert not JobAttempt.objects.exists()
    assert pool.process.poll() is None


@pytest.mark.parametrize("count", [1, 40])
def test_until_empty_a_worker_waits_for_the_suspects_that_it_has_put_off(start, diary, count):
    suspects([gang.note.prepare(str(diary), f"s{n}") for n in range(count)])
    pool = start("--concurrency", "3", "--until-empty", "-v0", processes=1)
    assert pool.ended() == 0
    assert sorted(diary.words) == sorted(f"s{n}" for n in range(count))
    assert not Job.objects.exists()


def test_where_children_are_started_afresh_suspects_run_beside_the_others_too(start, diary):
    suspects([gang.hold.prepare(str(diary), str(diary.gate), f"s{n}") for n in range(2)])
    start("--concurrency", "3", processes=1, environment={"GANG_THREAD": "1"})
    until(lambda: len(begins(diary)) == 2)
    gang.note.enqueue(str(diary), "quick")
    until(lambda: "quick" in diary.words)
    assert len({pid for pid, _, _ in diary.lines}) == 3


@pytest.mark.parametrize("afresh", [{}, {"GANG_THREAD": "1"}], ids=["forked", "afresh"])
def test_for_one_suspect_only_one_child_is_born(start, diary, afresh):
    suspects([gang.hold.prepare(str(diary), str(diary.gate), "s")])
    pool = start("--concurrency", "3", processes=1, environment=afresh)
    until(lambda: begins(diary))
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert len(pool.family) == 3  # the fork server, one for everything and one for the suspect
