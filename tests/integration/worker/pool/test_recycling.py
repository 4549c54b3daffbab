"""Children that are replaced after so many jobs, or for the memory they hold."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from django_jobs import enqueue_many
from django_jobs.models import Job, JobResult, JobState
from django_jobs.worker.pool.lifecycle import MEGABYTE, resident_bytes
from tests.integration.worker.pool.conftest import children_of, is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)


def charged():
    return set(JobResult.objects.values_list("status", "attempts"))


def test_no_child_runs_more_than_its_jobs(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(100)])
    pool = start("--until-empty", "--child-max-jobs", "7", "-v0")
    assert pool.ended() == 0
    counts = Counter(pid for pid, _, _ in diary.lines)
    assert sum(counts.values()) == 100
    assert max(counts.values()) == 7
    assert charged() == {("succeeded", 0)}
    assert " died" not in pool.said


def test_each_job_can_have_a_process_of_its_own(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(40)])
    pool = start("--child-max-jobs", "1", processes=3)
    until(lambda: JobResult.objects.count() == 40)
    assert len({pid for pid, _, _ in diary.lines}) == 40
    until(lambda: len(children_of(pool.fork_server)) == 3)
    open_before = len(os.listdir(f"/proc/{pool.pid}/fd"))  # noqa: PTH208 - a list of numbers
    enqueue_many([gang.note.prepare(str(diary), f"m{n}") for n in range(40)])
    until(lambda: JobResult.objects.count() == 80)
    until(lambda: len(children_of(pool.fork_server)) == 3)
    # The parent may have the last one's end still to close.
    until(lambda: len(os.listdir(f"/proc/{pool.pid}/fd")) <= open_before)  # noqa: PTH208 - as above
    assert "as soon as they are born" not in pool.said
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0


def test_a_child_that_holds_too_much_memory_is_replaced(start, diary):
    gang.hoard.enqueue(str(diary), 200)
    pool = start("--child-max-memory", "180", "-v0", processes=1)
    heavy = until(lambda: diary.words and diary.pid("hoard"))
    until(lambda: not is_alive(heavy))
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(50)])
    until(lambda: JobResult.objects.count() == 51)
    assert len({pid for pid, _, _ in diary.lines}) == 2
    assert charged() == {("succeeded", 0)}
    assert " died" not in pool.said
    assert pool.process.poll() is None


def test_a_child_with_little_memory_stays(start, diary):
    enqueue_many([gang.hoard.prepare(str(diary), 1, f"n{n}") for n in range(20)])
    assert start("--until-empty", "--child-max-memory", "500", processes=1).ended() == 0
    assert len({pid for pid, _, _ in diary.lines}) == 1


def test_its_replacement_serves_while_a_worn_child_runs_its_last_job(start, diary):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start("--child-max-memory", "180", "--concurrency", "2", processes=1)
    until(lambda: "hold-begins" in diary.words)
    gang.hoard.enqueue(str(diary), 200)
    until(lambda: len(children_of(pool.fork_server)) == 2)
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(20)])
    until(lambda: JobResult.objects.count() == 21)
    worn = diary.pid("hold-begins")
    assert diary.pid("hoard") == worn
    assert worn not in {diary.pid(f"n{n}") for n in range(20)}
    assert "hold-ends" not in diary.words
    diary.gate.touch()
    until(lambda: not is_alive(worn))
    until(lambda: JobResult.objects.count() == 22)
    assert diary.pid("hold-ends") == worn
    assert charged() == {("succeeded", 0)}


def test_what_a_worn_child_was_handed_and_has_not_begun_others_run(start, diary, tmp_path):
    first_gate, open_gate = tmp_path / "first-gate", tmp_path / "open-gate"
    open_gate.touch()
    for _ in range(30):  # short ones, so that the next are handed over together
        gang.hold.enqueue(str(diary), str(open_gate), "quick")
        gang.hoard.enqueue(str(diary), 0)
    pool = start("--child-max-memory", "180", processes=1)
    until(lambda: JobResult.objects.count() == 60)
    jobs = [
        gang.hold.prepare(str(diary), str(first_gate), "first"),
        gang.hoard.prepare(str(diary), 200, "much"),
        gang.hold.prepare(str(diary), str(diary.gate), "last"),
        gang.hoard.prepare(str(diary), 0, "given-up"),
    ]
    enqueue_many(jobs)
    until(lambda: "first-begins" in diary.words)
    until(lambda: Job.objects.filter(state=JobState.RUNNING).count() == 4)
    pool.signal(signal.SIGSTOP)  # it sees what happened when the third one runs already
    first_gate.touch()
    until(lambda: "last-begins" in diary.words)
    pool.signal(signal.SIGCONT)
    until(lambda: "given-up" in diary.words)
    assert "last-ends" not in diary.words
    assert diary.pid("last-begins") == diary.pid("much") != diary.pid("given-up")
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 64)
    until(lambda: children_of(pool.fork_server) == [diary.pid("given-up")])


def test_with_several_at_once_few_more_run_than_allowed(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(100)])
    options = ("--until-empty", "--child-max-jobs", "5", "--concurrency", "4", "-v0")
    pool = start(*options)
    assert pool.ended() == 0
    counts = Counter(pid for pid, _, _ in diary.lines)
    assert sum(counts.values()) == 100
    assert max(counts.values()) <= 5 + 4 - 1
    assert charged() == {("succeeded", 0)}
    assert " died" not in pool.said


@pytest.fixture
def loud(monkeypatch):
    monkeypatch.setenv("GANG_LOUD", "1")


def test_one_sentence_in_the_log_says_why(loud, start, diary):
    enqueue_many([gang.note.prepare(str(diary)) for _ in range(2)])
    pool = start("--child-max-jobs", "1", processes=1)
    until(lambda: JobResult.objects.count() == 2)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    first = diary.lines[0][0]
    told = [line for line in pool.said.splitlines() if f"child {first}" in line]
    why = "--child-max-jobs is 1"
    assert told == [f"worker.child_recycled child {first} is replaced after 1 jobs: {why}"]


def test_a_crash_of_a_worn_child_is_a_crash(start, diary):
    gang.die.enqueue(str(diary), "killed")
    gang.note.enqueue(str(diary))
    assert start("--until-empty", "--child-max-jobs", "1", processes=1).ended() == 0
    assert diary.words.count("killed-begins") == 2
    assert not Job.objects.exists()
    assert JobResult.objects.count() == 1


@pytest.mark.parametrize("option", ["--child-max-jobs", "--child-max-memory"])
def test_without_children_there_is_none_to_replace(start, option):
    pool = start(option, "3", processes=0)
    assert pool.ended() == 2
    assert "without children" in pool.said
    assert "Traceback" not in pool.said


def test_the_memory_of_a_process_is_what_the_system_says():
    status = Path("/proc/self/status").read_text()
    told = next(int(line.split()[1]) for line in status.splitlines() if line[:6] == "VmRSS:")
    assert resident_bytes(os.getpid()) == pytest.approx(told * 1024, abs=8 * MEGABYTE)
    assert resident_bytes(2**22 + 1) == 0
