"""The public signals of a pool: told in a process of their own, which may hang or die."""

import contextlib
import os
import signal
import subprocess
import time

import pytest

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobResult
from tests.integration.worker.pool.conftest import children_of, is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def listening(monkeypatch, diary):
    monkeypatch.setenv("GANG_LISTENS", str(diary))
    monkeypatch.setenv("GANG_LOUD", "1")


def told(diary, kind="dead"):
    """Each line of a receiver: its pid, and what it was told."""
    return [
        (int(pid), word.split("|")[1:])
        for pid, word, _ in diary.lines
        if word.startswith(f"{kind}|")
    ]


def errors_told(diary):
    return [facts[4] for _, facts in told(diary)]


def test_a_death_is_told_once_and_where_no_job_runs(listening, start, diary):
    gang.note.enqueue(str(diary))
    handle = gang.fail.using(max_retries=1, retry="none", queue="mail").enqueue("no stamp")
    pool = start("--until-empty")
    assert pool.ended() == 0
    ((pid, facts),) = told(diary)
    failure = FailedJob.objects.get(job_id=handle.id)
    assert facts == [
        *(handle.id, "gang.fail", failure.reason, "ValueError", "no_stamp", "mail", "2"),
        "tidy=True",
    ]
    assert pid not in {pool.pid, diary.pid("ran")}
    assert "signal.lost" not in pool.said


def test_crashes_are_told_and_the_last_one_as_a_death(listening, start, diary):
    gang.die.enqueue(str(diary), "killed")
    assert start("--until-empty").ended() == 0
    assert [facts for _, facts in told(diary, "crashed")] == [["gang.die", "1"]]
    assert [facts[2:5] for _, facts in told(diary)] == [
        ["crashed", "", "the_process_was_killed_by_SIGKILL"]
    ]


def test_without_receivers_there_is_no_such_process(start, diary):
    pool = start()
    gang.fail.enqueue("unheard")
    until(FailedJob.objects.exists)
    gang.note.enqueue(str(diary))
    until(JobResult.objects.exists)
    assert len(children_of(pool.fork_server)) == 2


def test_it_leaves_when_there_is_nothing_to_tell_and_comes_again(
    listening, monkeypatch, start, diary
):
    pool = start(processes=1)
    gang.fail.enqueue("first")
    sender = until(lambda: told(diary))[0][0]
    assert is_alive(sender)
    gang.fail.enqueue("second")
    until(lambda: len(told(diary)) == 2)
    assert told(diary)[1][0] == sender
    os.kill(sender, signal.SIGKILL)  # as good as any other way to go
    until(lambda: sender not in children_of(pool.fork_server))
    gang.fail.enqueue("third")
    until(lambda: len(told(diary)) == 3)
    assert told(diary)[2][0] != sender


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setenv("GANG_IDLE", "0.2")


def test_it_does_not_stay_for_nothing(listening, impatient, start, diary):
    pool = start(processes=1)
    gang.fail.enqueue("first")
    sender = until(lambda: told(diary))[0][0]
    until(lambda: not is_alive(sender))
    assert len(children_of(pool.fork_server)) == 1
    gang.fail.enqueue("second")
    until(lambda: len(told(diary)) == 2)
    assert "signal.lost" not in pool.said


@pytest.mark.parametrize("how", ["hang", "die"])
def test_a_receiver_that_hangs_or_dies_hinders_no_job_and_no_other_signal(
    listening, start, diary, how
):
    pool = start()
    gang.fail.enqueue(how)
    until(lambda: f"{how}-begins" in diary.words)
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(50)])
    gang.fail.enqueue("after")
    until(lambda: JobResult.objects.count() == 50)
    until(lambda: "after" in errors_told(diary))
    assert errors_told(diary) == ["after"]
    assert diary.words.count(f"{how}-begins") == 1  # it is not told again
    assert pool.said.count("signal.lost job_dead did not reach all its receivers") == 1
    assert set(FailedJob.objects.values_list("crashes", "attempts")) == {(0, 1)}
    assert pool.process.poll() is None


def test_a_receiver_that_writes_to_the_parent_hinders_no_other_signal(listening, start, diary):
    pool = start()
    gang.fail.enqueue("garble")
    until(lambda: "signal.lost" in pool.said)
    gang.fail.enqueue("after")
    until(lambda: "after" in errors_told(diary))
    assert diary.words.count("garble-begins") == 1
    assert pool.process.poll() is None


def test_a_receiver_that_takes_too_long_is_interrupted(listening, start, diary):
    gang.fail.enqueue("exceed")
    gang.fail.enqueue("after")
    pool = start("--until-empty")
    assert pool.ended() == 0
    assert errors_told(diary) == ["after"]
    assert "its receivers took more than 0.4 seconds" in pool.said


def test_what_a_receiver_raises_or_leaves_open_changes_nothing(listening, start, diary):
    for how in ("stumble", "leave", "leave-open", "after"):
        gang.fail.enqueue(how)
    pool = start("--until-empty", processes=1)
    assert pool.ended() == 0
    # After an ordinary error the other receivers are still told.
    assert errors_told(diary) == ["stumble", "leave-open", "after"]
    assert [facts[-1] for _, facts in told(diary)] == ["tidy=True", "tidy=False", "tidy=True"]
    assert (
        "receiver.failed the receiver misbehave of job_dead raised an exception, for " in pool.said
    )
    assert "LookupError: a receiver stumbled" in pool.said
    assert "a receiver raised SystemExit" in pool.said
    assert FailedJob.objects.count() == 4
    assert not Job.objects.exists()


@pytest.mark.parametrize("how", ["hang", "after"])
def test_a_worker_that_ends_waits_for_receivers_but_not_forever(listening, start, diary, how):
    gang.fail.enqueue(how)
    began = time.monotonic()
    pool = start("--max-jobs", "1")
    assert pool.ended() == 0
    assert time.monotonic() - began < 10
    assert ("signal.lost" in pool.said) == (how == "hang")
    assert len(errors_told(diary)) == (how == "after")


@pytest.fixture
def with_a_thread(monkeypatch):
    monkeypatch.setenv("GANG_THREAD", "1")


def test_it_is_started_afresh_where_children_are(listening, with_a_thread, start, diary):
    gang.fail.enqueue("afresh")
    pool = start("--until-empty")
    assert pool.ended() == 0
    assert errors_told(diary) == ["afresh"]
    assert "signal.lost" not in pool.said


def test_in_one_process_it_is_told_there(listening, start, diary):
    for how in ("stumble", "exceed", "leave", "after"):
        gang.fail.enqueue(how)
    pool = start("--until-empty", processes=0)
    assert pool.ended() == 0
    assert errors_told(diary) == ["stumble", "after"]
    assert {pid for pid, _ in told(diary)} == {pool.pid}
    assert pool.said.count("signal.lost") == 2


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setenv("GANG_HURRY", "60")


@pytest.mark.parametrize("processes", [0, 1])
def test_a_second_signal_does_not_wait_for_receivers(listening, patient, start, diary, processes):
    pool = start(processes=processes)
    gang.fail.enqueue("exceed")
    until(lambda: "exceed-begins" in diary.words)
    for _ in range(4):  # two that come too close together are one
        with contextlib.suppress(subprocess.TimeoutExpired):
            pool.signal(signal.SIGTERM)
            pool.process.wait(4)
            break
    assert pool.process.returncode == 143
    assert pool.said.count("signal.lost") == 1
