"""What libraries registered with ``atexit`` gets its chance when a process of a worker ends."""

import signal
import time

import pytest

from django_jobs.models import FailedJob, Job, JobResult
from django_jobs.worker.pool.forkserver import LEAVE_SECONDS
from django_jobs.worker.stop import EXIT_SECONDS
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
LOUD = {"GANG_LOUD": "1"}


def charged():
    return set(JobResult.objects.values_list("status", "attempts"))


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_recycled_child_runs_exit_hooks_though_one_raises(start, diary, concurrency):
    gang.parts.enqueue(str(diary), "raises", "notes")
    options = ("--child-max-jobs", "1", "--concurrency", str(concurrency))
    pool = start(*options, processes=1, environment=LOUD)
    until(lambda: "notes" in diary.words)
    worn = diary.pid("notes")
    assert worn == diary.pid("parts")
    until(lambda: not is_alive(worn))
    gang.note.enqueue(str(diary), "after")
    until(lambda: JobResult.objects.count() == 2)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert charged() == {("succeeded", 0)}
    assert "worker.child_died" not in pool.said
    assert diary.words.count("notes") == 1


@pytest.mark.parametrize("thread", ["", "1"], ids=["forked", "afresh"])
@pytest.mark.parametrize("ends", ["is recycled", "is told to stop"])
def test_what_a_tracker_holds_back_is_sent(start, diary, ends, thread):
    """One that the settings set up, so that its hook comes from the parent."""
    gang.parts.enqueue(str(diary), told="sent")
    parts = {"GANG_PARTS": "tracks", "GANG_DIARY": str(diary), "GANG_THREAD": thread}
    options = ("--child-max-jobs", "1") if ends == "is recycled" else ()
    pool = start(*options, processes=1, environment={**LOUD, **parts})
    until(JobResult.objects.exists)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert diary.words == ["parts", "sent"]
    assert diary.pid("sent") == diary.pid("parts")


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_hook_that_hangs_holds_up_a_recycled_child_for_a_while_only(start, diary, concurrency):
    gang.parts.enqueue(str(diary), "notes", "hangs")
    options = ("--child-max-jobs", "1", "--concurrency", str(concurrency))
    pool = start(*options, processes=1, environment={**LOUD, "GANG_EXIT_SECONDS": "1"})
    until(lambda: "hangs" in diary.words)
    gang.note.enqueue(str(diary), "meanwhile")
    until(lambda: "meanwhile" in diary.words)
    worn = diary.pid("hangs")
    assert is_alive(worn)
    assert diary.pid("meanwhile") != worn
    until(lambda: not is_alive(worn))
    until(lambda: "worker.exit_hooks_cut" in pool.said)
    assert diary.words == ["parts", "notes", "hangs", "meanwhile"]
    assert charged() == {("succeeded", 0)}
    assert "worker.child_died" not in pool.said
    assert pool.process.poll() is None


@pytest.mark.parametrize("signals", [1, 2])
def test_a_hook_that_hangs_holds_up_the_end_of_a_worker_for_a_while_only(start, diary, signals):
    gang.parts.enqueue(str(diary), "hangs")
    pool = start(processes=2, environment=LOUD)
    until(JobResult.objects.exists)
    began = time.monotonic()
    pool.signal(signal.SIGTERM)
    until(lambda: "hangs" in diary.words)
    if signals == 2:
        pool.signal(signal.SIGTERM)
    assert pool.ended() == (0 if signals == 1 else 128 + signal.SIGTERM)
    assert time.monotonic() - began < LEAVE_SECONDS + 3
    assert not Job.objects.exists()
    assert charged() == {("succeeded", 0)}
    assert "worker.stopped" in pool.said


@pytest.mark.parametrize("processes", [0, 1])
def test_a_hook_that_hangs_in_the_parent_holds_up_its_end_for_a_while_only(start, diary, processes):
    parts = {"GANG_PARTS": "hangs-in-the-parent", "GANG_DIARY": str(diary)}
    gang.note.enqueue(str(diary))
    pool = start(processes=processes, environment={**LOUD, **parts})
    until(JobResult.objects.exists)
    began = time.monotonic()
    pool.signal(signal.SIGTERM)
    until(lambda: "hangs" in diary.words)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert time.monotonic() - began < EXIT_SECONDS + 3
    assert diary.pid("hangs") == pool.pid


def test_a_child_that_is_killed_runs_no_hooks(start, diary):
    gang.parts.enqueue(str(diary), "notes", dies=True)
    start(processes=1, environment=LOUD)
    until(FailedJob.objects.exists)
    gang.note.enqueue(str(diary), "after")
    until(JobResult.objects.exists)
    assert "notes" not in diary.words


def test_what_the_parent_is_to_remove_outlives_its_children(start, diary):
    parts = {"GANG_PARTS": "has-a-folder", "GANG_DIARY": str(diary)}
    environment = {**LOUD, **parts}
    pool = start("--child-max-jobs", "1", processes=1, environment=environment)
    for word in ("one", "two", "three"):
        has = gang.has_folder.enqueue(str(diary), word)
        until(lambda: not Job.objects.exists())
        until(lambda word=word: not is_alive(diary.pid(word)))
        assert has.result() is True
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
