"""A child that hangs where no job runs: it is found and replaced, and no job pays for it."""

import os
import signal
import time

import pytest

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobResult
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
FAULT = "nothing went on in it for"
IDLE, TELLING, ADMITTING = "ChildMainLoop._receive", "Channel.send", "Gatekeeper.admit"


@pytest.fixture
def soon(monkeypatch):
    """What is silent for two seconds has hung; outside of tests it may be for longer."""
    monkeypatch.setenv("GANG_SILENT", "2")


def notes(diary, count):
    return enqueue_many(gang.note.prepare(str(diary), f"n{n}") for n in range(count))


def uncharged():
    return not FailedJob.objects.exists() and set(
        JobResult.objects.values_list("status", "attempts")
    ) == {("succeeded", 0)}


def test_what_was_handed_over_and_is_not_begun_runs_elsewhere_in_ten_seconds(start, diary):
    gang.hog.enqueue(str(diary), str(diary.gate))
    pool = start(processes=1)
    until(JobResult.objects.exists)
    diary.gate.touch()
    until(diary.gate.with_name("gate-taken").exists)
    began_at = time.monotonic()
    notes(diary, 4)
    until(lambda: FAULT in pool.said)
    assert time.monotonic() - began_at < 10
    until(lambda: not Job.objects.exists())
    assert len(diary.words) == JobResult.objects.count()
    assert uncharged()
    assert pool.said.count(FAULT) == 1
    assert not is_alive(diary.pid("hog"))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_child_that_hangs_before_it_listens_again_is_replaced(soon, start, diary, processes):
    gang.haunt.enqueue(str(diary), IDLE)
    pool = start(processes=processes)
    until(JobResult.objects.exists)
    until(lambda: notes(diary, 4) and FAULT in pool.said)
    until(lambda: not Job.objects.exists())
    assert len(diary.words) == JobResult.objects.count()
    assert uncharged()
    assert len(pool.family) == processes + 1
    assert diary.pid("haunt") not in pool.family


def notes_of(diary):
    return [word for word in diary.words if word != "haunt"]


def test_a_job_begun_whose_handler_is_not_come_to_is_not_charged(soon, start, diary):
    gang.haunt.enqueue(str(diary), ADMITTING)
    gang.note.using(max_crashes=1).enqueue(str(diary))
    pool = start("--until-empty", processes=1)
    assert pool.ended() == 0
    assert diary.words == ["haunt", "ran"]
    assert uncharged()
    assert pool.said.count(f"died ({FAULT}") == 1


def test_a_job_that_ended_and_is_not_told_is_charged_when_it_happens_alone(soon, start, diary):
    gang.haunt.enqueue(str(diary), TELLING)
    began = notes(diary, 5)
    pool = start(processes=1)
    dead = until(FailedJob.objects.first)
    assert (dead.handler, dead.reason, dead.crashes, dead.attempts) == (
        *("gang.haunt", "crashed"),
        *(1, 0),
    )
    assert FAULT in dead.error_message
    until(lambda: JobResult.objects.count() == len(began))
    assert diary.words.count("haunt") == 2
    assert len(notes_of(diary)) == len(began)
    assert pool.process.poll() is None


def test_a_loop_that_hangs_between_jobs_charges_nothing_to_those_beside(soon, start, diary):
    gang.async_hold.using(max_crashes=1).enqueue(str(diary), str(diary.gate))
    pool = start("--concurrency", "3", processes=1)
    until(lambda: diary.words)
    gang.async_haunt.enqueue(str(diary), TELLING)
    notes(diary, 5)
    dead = until(FailedJob.objects.first)
    assert (dead.handler, dead.reason, dead.crashes) == ("gang.async_haunt", "crashed", 1)
    assert diary.words.count("haunt") == 2  # beside others, then alone
    until(lambda: JobResult.objects.count() == 5)
    until(lambda: diary.words.count("hold-begins") == 2)
    assert not Job.objects.get().suspect
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 6)
    assert pool.process.poll() is None


def test_what_waits_behind_a_coroutine_that_blocks_runs_elsewhere(soon, start, diary):
    gang.async_block.using(timeout=None).enqueue(str(diary), str(diary.gate))
    pool = start("--concurrency", "2", processes=2)
    until(lambda: diary.words)
    notes(diary, 60)
    until(lambda: JobResult.objects.count() == 60)
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 61)
    assert diary.words.count("block-begins") == 1
    assert FAULT not in pool.said
    notes(diary, 10)
    until(lambda: JobResult.objects.count() == 71)


@pytest.mark.parametrize("place", [IDLE, TELLING, ADMITTING])
@pytest.mark.parametrize("how", ["signal", "--max-seconds"])
def test_a_worker_that_is_to_end_does_not_wait_for_it(soon, start, diary, place, how):
    gang.haunt.enqueue(str(diary), place)
    gang.note.enqueue(str(diary))
    pool = start(*(() if how == "signal" else (how, "2")), processes=1)
    until(lambda: "haunt" in diary.words)
    if how == "signal":
        pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert not FailedJob.objects.exists()
    assert set(Job.objects.values_list("attempts", "crashes")) <= {(0, 0)}


def test_a_child_that_was_stopped_charges_nobody_and_what_runs_is_left_alone(soon, start, diary):
    gang.hold.using(timeout=None).enqueue(str(diary), str(diary.gate))
    pool = start()
    until(lambda: diary.words)
    (idle,) = set(pool.family[1:]) - {diary.pid("hold-begins")}
    os.kill(idle, signal.SIGSTOP)
    notes(diary, 3)
    until(lambda: JobResult.objects.count() == 3)
    assert not is_alive(idle)
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 4)
    assert diary.words.count("hold-begins") == 1
    assert uncharged()
    assert pool.said.count(FAULT) == 1


def test_children_that_never_become_ready_end_the_worker(soon, start, diary):
    notes(diary, 2)
    pool = start(processes=1, environment={"GANG_HAUNTS": "ChildMainLoop.run"})
    until(lambda: pool.process.poll() is not None, 60)
    assert pool.process.poll() == 1
    assert "before it was ready for jobs" in pool.said
    assert set(Job.objects.values_list("attempts", "crashes", "suspect")) == {(0, 0, False)}
