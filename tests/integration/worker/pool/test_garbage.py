"""What code in a child writes to its connection costs that child, and nobody else anything."""

import pytest

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, JobAttempt, JobResult
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
FAULT = "what it sent cannot be read"


@pytest.mark.parametrize("how", ["request", "byte", "length", "endless", "no-frame", "no-text"])
def test_who_writes_to_the_parent_is_found_and_its_neighbours_go_on(start, diary, how):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start()
    until(lambda: diary.words == ["hold-begins"])
    gang.garble.enqueue(str(diary), how)
    dead = until(FailedJob.objects.first)
    # At first it is suspected only: an earlier job might have left a thread that did it.
    assert diary.words.count(f"{how}-begins") == 3
    assert (dead.reason, dead.crashes, dead.attempts) == ("crashed", 2, 0)
    assert FAULT in dead.error_message
    assert pool.said.count(f"died ({FAULT}") == 3
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(20)])
    until(lambda: JobResult.objects.count() == 20)
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 21)
    assert diary.words.count("hold-begins") == 1
    assert not JobAttempt.objects.exists()
    pids = {int(pid) for pid, word, _ in diary.lines if word == f"{how}-begins"}
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)
    assert pool.process.poll() is None


@pytest.mark.parametrize("how", ["request", "endless"])
def test_among_others_it_is_found_by_running_alone(start, diary, how):
    others = [gang.async_hold.enqueue(str(diary), str(diary.gate), f"h{n}") for n in range(2)]
    pool = start("--concurrency", "4", processes=1)
    until(lambda: len(diary.words) == 2)
    gang.garble.enqueue(str(diary), how)
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.handler, dead.crashes) == ("crashed", "gang.garble", 2)
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == len(others))
    assert pool.said.count("crashed (1 so far)") == 1
    assert diary.words.count(f"{how}-begins") == 3
    assert pool.process.poll() is None


def test_what_was_told_before_counts_and_what_had_not_begun_is_not_charged(start, diary):
    before = [gang.note.enqueue(str(diary), f"b{n}") for n in range(30)]
    gang.garble.using(max_crashes=1).enqueue(str(diary), "request")
    after = [gang.note.enqueue(str(diary), f"a{n}") for n in range(30)]
    pool = start("--until-empty", processes=1)
    assert pool.ended() == 0
    assert JobResult.objects.count() == len(before) + len(after)
    assert "crashed (1 so far)" not in pool.said
    assert [word for word in diary.words if word.startswith("b")] == [f"b{n}" for n in range(30)]
