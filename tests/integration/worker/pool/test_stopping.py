"""How a pool is stopped: asked, told twice, or killed with all it holds."""

import os
import signal
import time
from collections import Counter

import pytest

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)
STOPPING = "stopping, because a signal asked for it"
HUNDREDS = 240
UNCHARGED = (JobState.READY, 0, 0, False)


def charges():
    return set(Job.objects.values_list("state", "attempts", "crashes", "suspect"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("everybody", [False, True], ids=["the-parent", "the-whole-group"])
def test_the_first_signal_lets_running_jobs_end_and_gives_the_rest_back(
    start, diary, everybody, number
):
    enqueue_many([gang.hold.prepare(str(diary), str(diary.gate), f"h{n}") for n in range(2)])
    pool = start()
    until(lambda: len(diary.words) == 2)
    enqueue_many([gang.note.prepare(str(diary)) for _ in range(20)])
    for pid in [pool.pid, *(pool.family if everybody else [])]:
        os.kill(pid, number)
    until(lambda: STOPPING in pool.said)
    assert pool.process.poll() is None
    diary.gate.touch()
    assert pool.ended() == 0
    assert sorted(diary.words) == ["h0-begins", "h0-ends", "h1-begins", "h1-ends"]
    assert Job.objects.count() == 20
    assert charges() == {UNCHARGED}


def test_what_was_handed_over_and_not_begun_returns_to_its_old_place(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(60)])
    gang.hold.enqueue(str(diary), str(diary.gate))
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(60, 160)])
    before = set(Job.objects.values_list("id", "due", "rank"))
    pool = start(processes=1)
    until(lambda: "hold-begins" in diary.words)
    pool.signal(signal.SIGTERM)
    until(lambda: not Job.objects.filter(state=JobState.RUNNING).exclude(handler="gang.hold"))
    diary.gate.touch()
    assert pool.ended() == 0
    assert charges() == {UNCHARGED}
    left = set(Job.objects.values_list("id", "due", "rank"))
    assert left <= before
    assert len(left) + JobResult.objects.count() == 161


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once_and_charges_nothing(start, diary, number, code):
    enqueue_many([gang.hold.prepare(str(diary), str(diary.gate), f"h{n}") for n in range(2)])
    pool = start()
    until(lambda: len(diary.words) == 2)
    family = pool.family
    pool.signal(number)
    until(lambda: STOPPING in pool.said)
    began = time.monotonic()
    pool.signal(number)
    assert pool.ended() == code
    assert time.monotonic() - began < 2
    assert charges() == {UNCHARGED}
    assert not JobAttempt.objects.exists()
    assert not any(is_alive(pid) for pid in family)
    diary.gate.touch()
    assert start("--until-empty").ended() == 0
    assert JobResult.objects.filter(status="succeeded").count() == 2


def test_a_killed_parent_charges_nobody_and_another_worker_runs_all(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(50)])
    enqueue_many([gang.hold.prepare(str(diary), str(diary.gate), f"h{n}") for n in range(2)])
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(50, 300)])
    pool = start("-v0", LEASE_SECONDS=4)
    until(lambda: {"h0-begins", "h1-begins"} <= set(diary.words))
    family = pool.family
    pool.signal(signal.SIGKILL)
    pool.ended()
    until(lambda: not any(is_alive(pid) for pid in family), patience=2)
    held = Job.objects.filter(state=JobState.RUNNING).count()
    print(f"the killed parent held {held} leases")
    assert held >= 2
    diary.gate.touch()
    another = start("-v0", LEASE_SECONDS=4)
    until(lambda: JobResult.objects.count() == 302)
    another.signal(signal.SIGTERM)
    assert another.ended() == 0
    assert not Job.objects.exists()
    assert not FailedJob.objects.exists()
    assert set(JobResult.objects.values_list("status", "attempts")) == {("succeeded", 0)}
    counts = Counter(diary.words)
    assert counts["h0-begins"] == counts["h1-begins"] == 2
    # What had been run and not settled when the parent died may have run again; no more.
    assert all(counts[f"n{n}"] in {1, 2} for n in range(300))


def test_a_killed_parent_of_hundreds_that_run_charges_none_of_them(start, diary):
    holds = [gang.async_hold.prepare(str(diary), str(diary.gate), f"h{n}") for n in range(HUNDREDS)]
    enqueue_many(holds)
    crowd = ("-v0", "--concurrency", str(HUNDREDS // 2))
    pool = start(*crowd, LEASE_SECONDS=4)
    until(lambda: len(diary.words) == HUNDREDS)
    family = pool.family
    pool.signal(signal.SIGKILL)
    pool.ended()
    until(lambda: not any(is_alive(pid) for pid in family), patience=2)
    assert Job.objects.filter(state=JobState.RUNNING).count() == HUNDREDS >= 200
    diary.gate.touch()
    another = start(*crowd, LEASE_SECONDS=4)
    until(lambda: Job.objects.filter(suspect=True).exists())
    until(lambda: JobResult.objects.count() == HUNDREDS, patience=60)
    assert another.process.poll() is None
    assert not FailedJob.objects.exists()
    assert set(JobResult.objects.values_list("status", "attempts")) == {("succeeded", 0)}
    counts = Counter(diary.words)
    assert all(counts[f"h{n}-begins"] == 2 for n in range(HUNDREDS))
    assert all(counts[f"h{n}-ends"] == 1 for n in range(HUNDREDS))


def test_a_suspect_runs_alone(start, diary):
    for word in ("a", "b"):
        gang.hold.enqueue(str(diary), str(diary.gate), word)
    Job.objects.update(suspect=True)
    pool = start()
    until(lambda: len(diary.words) == 2)
    assert diary.pid("a-begins") != diary.pid("b-begins")
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 2)
    assert pool.process.poll() is None
