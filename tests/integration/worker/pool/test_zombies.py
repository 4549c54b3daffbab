"""Frozen processes that thaw: what they lost meanwhile they neither settle nor go on running."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang
from tests.integration.worker.pool.wreck import jobs as wreck

pytestmark = pytest.mark.django_db(transaction=True)
LEASE = 3
THAWED_SECONDS = 1.0
HAND_OVERS = 5
WRECK = {"DJANGO_SETTINGS_MODULE": "tests.integration.worker.pool.wreck.settings"}


@pytest.fixture
def freeze():
    """Stops processes; whatever happens, they are continued at the end."""
    frozen = []

    def freeze(*pids):
        frozen.extend(pids)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    yield freeze
    thaw(*frozen)


def thaw(*pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def worker(start, *options, **settings):
    return start(*options, environment=WRECK, LEASE_SECONDS=LEASE, **settings)


def runners(diary):
    """The processes that ran something, in their order."""
    return [int(pid) for pid in dict.fromkeys(pid for pid, _, _ in diary.lines)]


def nothing_is_left_or_charged():
    return not any(model.objects.exists() for model in (Job, FailedJob, JobAttempt))


@pytest.mark.parametrize("who", ["its-parent", "all-of-it"])
def test_what_a_frozen_worker_settles_too_late_changes_nothing(start, diary, freeze, who):
    gang.hold.enqueue(str(diary), str(diary.gate))
    zombie = worker(start, "--queue", "default,own", processes=1)
    until(lambda: diary.words == ["hold-begins"])
    frozen = [zombie.pid] if who == "its-parent" else [zombie.pid, *zombie.family]
    freeze(*frozen)
    other = worker(start, "--queue", "default", processes=1)
    until(lambda: diary.words.count("hold-begins") == 2)
    first, second = runners(diary)
    assert second in other.family
    diary.gate.touch()
    until(JobResult.objects.exists)
    if who == "its-parent":  # whose child has ended its run and waits to be heard
        until(lambda: diary.words.count("hold-ends") == 2)
    kept = JobResult.objects.values().get()
    thaw(*frozen)
    until(lambda: "[lease.lost]" in zombie.said)
    gang.note.using(queue="own").enqueue(str(diary), "goes-on")
    until(lambda: JobResult.objects.count() == 2)
    assert JobResult.objects.values().get(pk=kept["job_id"]) == kept
    assert kept["worker"].endswith(f":{second}")
    assert (kept["status"], kept["attempts"]) == ("succeeded", 0)
    assert nothing_is_left_or_charged()
    assert diary.words.count("hold-begins") == 2
    assert zombie.said.count("[lease.lost]") == 1
    assert "[lease.lost]" not in other.said
    assert other.said.count("[job.succeeded]") == 1
    assert zombie.process.poll() is None
    assert first != second


def test_what_a_thawed_worker_settles_while_another_runs_it_changes_nothing(start, diary, freeze):
    wreck.pulse.enqueue(str(diary), str(diary.gate))
    zombie = worker(start, processes=1)
    until(lambda: diary.words)
    freeze(zombie.pid)
    worker(start, processes=1)
    until(lambda: len(runners(diary)) == 2)
    first, second = runners(diary)
    Path(f"{diary.gate}.{first}").touch()
    until(lambda: "pulse-ends" in diary.words)
    held = Job.objects.values("lease_token", "worker", "attempts", "crashes", "deliveries").get()
    thaw(zombie.pid)
    until(lambda: "[lease.lost]" in zombie.said)
    assert Job.objects.values(*held).get() == held
    assert not JobResult.objects.exists()
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert JobResult.objects.get().worker.endswith(f":{second}")
    assert nothing_is_left_or_charged()


def test_a_thawed_parent_ends_at_once_what_it_has_lost(start, diary, freeze):
    wreck.pulse.enqueue(str(diary), str(diary.gate))
    zombie = worker(start, processes=1)
    until(lambda: diary.words)
    family = zombie.family
    freeze(zombie.pid)
    other = worker(start, processes=1)
    until(lambda: len(runners(diary)) == 2)
    first, second = runners(diary)
    thawed_at = time.monotonic()
    thaw(zombie.pid)
    until(lambda: not is_alive(first), patience=THAWED_SECONDS)
    last = max(float(at) for pid, _, at in diary.lines if int(pid) == first)
    print(f"ended {last - thawed_at:.3f} s after the parent was thawed")
    until(lambda: "[lease.lost]" in zombie.said)
    running = Job.objects.get()
    # Its parent lives and has said so: that its lease ended makes nobody suspect it any more.
    assert (running.attempts, running.crashes, running.suspect) == (0, 0, False)
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert JobResult.objects.get().worker.endswith(f":{second}")
    assert nothing_is_left_or_charged()
    assert second in other.family
    until(lambda: len(zombie.family) == 2 and first in family and first not in zombie.family)


def test_the_child_of_a_frozen_parent_begins_nothing_without_a_lease(start, diary, freeze):
    """It was handed several short jobs, and the first of them has become a long one."""
    zombie = worker(start, "-v0", processes=1)
    first, gate, held = freeze_with_several(freeze, zombie, diary)
    worker(start, "-v0", processes=1)
    until(lambda: diary.words.count("long-begins") == 2)
    gate.touch()
    until(lambda: diary.words.count("long-ends") == 2)
    until(lambda: not Job.objects.exists())
    thaw(zombie.pid)
    until(lambda: zombie.said.count("[lease.lost]") == held)
    begun = [word for pid, word, _ in diary.lines if int(pid) == first]
    assert begun[-2:] == ["long-begins", "long-ends"]
    assert nothing_is_left_or_charged()


def freeze_with_several(freeze, zombie, diary):
    """A child of a frozen parent, the gate that it waits for, and how many jobs they hold."""
    running = Job.objects.filter(state=JobState.RUNNING)
    tail = 3
    for again in range(HAND_OVERS):
        gate = diary.gate.with_suffix(f".{again}")
        words = [*[("short", "")] * 100, ("long", str(gate)), *[("tail", "")] * tail]
        enqueue_many([wreck.turn.prepare(str(diary), word, at) for word, at in words])
        until(lambda: diary.words[-1:] == ["long-begins"])
        until(lambda: running.count() <= 1 + tail)  # what was before it is settled
        freeze(zombie.pid)  # before it gives back what waits behind a job that takes long
        if (held := running.count()) == 1 + tail:
            return int(diary.lines[-1][0]), gate, held
        thaw(zombie.pid)
        gate.touch()  # a slow moment: jobs went to the child one by one
        until(lambda: not Job.objects.exists())
        diary.path.unlink()
    raise AssertionError("no child was ever handed several jobs at once")


def test_the_job_of_a_frozen_child_is_renewed_and_runs_once(start, diary, freeze):
    gang.hold.enqueue(str(diary), str(diary.gate))
    first = worker(start, processes=1)
    until(lambda: diary.words)
    other = worker(start, processes=1)
    until(lambda: "[worker.started]" in other.said)
    ends = Job.objects.get().lease_expires
    freeze(diary.pid("hold-begins"))
    until(lambda: Job.objects.get().lease_expires > ends + LEASE * 1_000_000)
    diary.gate.touch()
    thaw(diary.pid("hold-begins"))
    until(JobResult.objects.exists)
    assert diary.words == ["hold-begins", "hold-ends"]
    assert nothing_is_left_or_charged()
    assert first.process.poll() is other.process.poll() is None


def test_a_frozen_child_is_killed_when_its_time_is_up(start, diary, freeze):
    gang.hold.using(timeout=1.0).enqueue(str(diary), str(diary.gate))
    worker(start, processes=1)
    until(lambda: diary.words)
    victim = diary.pid("hold-begins")
    freeze(victim)
    dead = until(FailedJob.objects.first)
    took = time.monotonic() - diary.moment("hold-begins")
    assert took < 1.0 + 0.3 + 1.0
    assert (dead.reason, dead.attempts, dead.crashes) == ("timed-out", 1, 0)
    assert not is_alive(victim)
