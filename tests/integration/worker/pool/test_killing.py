"""Handlers that do not end, and children that do: each is noticed, none hurts a neighbour."""

import os
import signal
import time

import pytest

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
TIMEOUT, GRACE = 0.4, 0.3


def test_no_handler_outlives_its_timeout_and_grace(start, diary):
    gang.hold.enqueue(str(diary), str(diary.gate))
    hows = ["loops", "swallows", "unalarmed", "regex", "holds-the-lock", "grandchild"]
    pool = start()
    until(lambda: diary.words == ["hold-begins"])
    neighbour = diary.pid("hold-begins")
    for count, how in enumerate(hows, 1):
        gang.stuck.enqueue(str(diary), how)
        until(lambda: f"{how}-begins" in diary.words)  # noqa: B023 - used at once
        until(lambda: FailedJob.objects.count() == count)  # noqa: B023 - used at once
        took = time.monotonic() - diary.moment(f"{how}-begins")
        print(f"{how}: ended {took - TIMEOUT:.3f} s after its timeout")
        assert took < TIMEOUT + GRACE + 1.0
    reasons = set(FailedJob.objects.values_list("reason", "attempts", "crashes"))
    assert reasons == {("timed-out", 1, 0)}
    assert JobAttempt.objects.filter(outcome="timed-out").count() == len(hows)
    (helper,) = [word for word in diary.words if word.startswith("helper=")]
    until(lambda: not is_alive(int(helper.partition("=")[2])))
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert diary.pid("hold-ends") == neighbour
    assert pool.process.poll() is None


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("exit-0", "exit code 0"),
        ("exit-1", "exit code 1"),
        ("segfault", "SIGSEGV"),
        ("killed", "SIGKILL"),
    ],
)
def test_a_dying_child_is_noticed_at_once_and_charges_one_job_alone(start, diary, how, told):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(40)])
    gang.die.enqueue(str(diary), how)
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(40, 80)])
    began = time.monotonic()
    pool = start("--until-empty")
    assert pool.ended() == 0
    assert time.monotonic() - began < 10
    dead = FailedJob.objects.get()
    assert (dead.reason, dead.crashes, dead.attempts) == ("crashed", 2, 0)
    assert told in dead.error_message
    notes = sorted(word for word in diary.words if word.startswith("n"))
    assert notes == sorted(f"n{n}" for n in range(80))
    assert JobResult.objects.filter(status="succeeded", attempts=0).count() == 80
    pids = [pid for pid, word, _ in diary.lines if word == f"{how}-begins"]
    assert len(set(pids)) == 2  # the second time in a replacement
    assert not any(is_alive(int(pid)) for pid in pids)
    assert pool.said.count("crashed (1 so far) and is run again") == 1
    assert pool.said.count(" died (of its own): ") == 2


def test_a_job_that_crashed_is_run_again_after_a_pause(start, diary):
    gang.die.using(max_crashes=2).enqueue(str(diary), "killed")
    pool = start(environment={"GANG_PAUSES": "kept"})
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.crashes) == ("crashed", 2)
    first, second = (float(at) for _, word, at in diary.lines if word == "killed-begins")
    assert second - first >= 1
    assert "crashed (1 so far) and is run again in 1.0 s" in pool.said


def test_a_child_that_closed_its_connection_is_replaced(start, diary):
    gang.die.using(max_crashes=1).enqueue(str(diary), "mute")
    assert start("--until-empty").ended() == 0
    assert "closed its connection" in FailedJob.objects.get().error_message


def test_a_child_killed_from_outside_is_replaced_and_its_job_runs_again(start, diary):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start()
    until(lambda: diary.words)
    os.kill(diary.pid("hold-begins"), signal.SIGKILL)
    until(lambda: diary.words.count("hold-begins") == 2)
    diary.gate.touch()
    until(JobResult.objects.exists)
    pids = [pid for pid, word, _ in diary.lines if word == "hold-begins"]
    assert pids[0] != pids[1]
    assert not is_alive(int(pids[0]))
    assert pool.process.poll() is None


def test_an_idle_child_killed_from_outside_charges_nobody(start, diary):
    pool = start()
    until(lambda: len(pool.family) == 3)
    victims = pool.family[1:]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(pool.family) == 3 and not set(pool.family) & set(victims))
    gang.note.enqueue(str(diary))
    until(JobResult.objects.exists)


def test_without_its_fork_server_a_worker_gives_back_and_ends(start, diary):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start()
    until(lambda: diary.words)
    family = pool.family
    os.kill(pool.fork_server, signal.SIGKILL)
    assert pool.ended() == 1
    assert "the process from which children come ended" in pool.said
    assert not any(is_alive(pid) for pid in family)
    job = Job.objects.get()
    assert (job.get_state_display().lower(), job.attempts, job.crashes, job.suspect) == (
        "ready",
        0,
        0,
        False,
    )
