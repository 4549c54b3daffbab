"""A server that freezes or is killed under a pool at work."""

import os
import time
from collections import Counter

import pytest
from django.db import connections

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang
from tests.integration.worker.pool.wreck import jobs as wreck

pytestmark = pytest.mark.django_db(transaction=True)
GOES_ON_SECONDS = 5.0
LEASE = 3
CRASHES = int(os.environ.get("DJANGO_JOBS_CHAOS_CRASHES", "3"))
WRECK = {"DJANGO_SETTINGS_MODULE": "tests.integration.worker.pool.wreck.settings"}
TIMEOUT, GRACE = 0.4, 0.3  # of gang.stuck, and of every worker here


def monotonic_of(microseconds):
    """A moment of the store's clock, which is this machine's, as handlers write moments."""
    return time.monotonic() + microseconds / 1e6 - time.time()


def goes_on(pool, diary, back_at, outages):
    """From a moment on it takes at most so long, and each outage is told once."""
    word = f"goes-on-{outages}"
    gang.note.using(priority=100).enqueue(str(diary), word)
    until(lambda: word in diary.words)
    took = diary.moment(word) - back_at
    print(f"went on {took:.2f} s after the server was back")
    assert took < GOES_ON_SECONDS
    assert pool.process.poll() is None
    until(lambda: pool.said.count("[store.found]") == pool.said.count("[store.lost]"))
    assert pool.said.count("[store.lost]") == outages


@pytest.mark.timeout(240)
def test_no_job_is_lost_or_charged_while_the_server_is_killed_again_and_again(server, start, diary):
    count = 400 * CRASHES
    pool = start(environment=WRECK, LEASE_SECONDS=10)
    for crash in range(CRASHES):
        words = [f"n{n}" for n in range(crash * 400, (crash + 1) * 400)]
        enqueue_many([gang.nap.prepare(str(diary), 0.01, word) for word in words])
        done = len(diary.words)
        until(lambda: len(diary.words) > done + 100)  # noqa: B023 - used at once
        server.crash()
        connections.close_all()
        server.start()
        back_at = time.monotonic()
        goes_on(pool, diary, back_at, outages=crash + 1)
    # Leases whose answer was lost with the server are waited for.
    until(lambda: JobResult.objects.count() == count + CRASHES, patience=90)
    runs = Counter(word for word in diary.words if word.endswith("-ends"))
    again = sum(runs.values()) - count
    print(f"{count} jobs, {CRASHES} crashes of the server, {again} ran more than once")
    assert set(runs) == {f"n{n}-ends" for n in range(count)}
    assert set(JobResult.objects.values_list("status", "attempts")) == {("succeeded", 0)}
    assert not Job.objects.exists()
    assert not FailedJob.objects.exists()
    assert not JobAttempt.objects.exists()


@pytest.mark.timeout(120)
def test_a_frozen_server_stops_neither_kills_nor_fences(server, start, diary):
    wreck.pulse.enqueue(str(diary), str(diary.gate))
    pool = start(processes=2, environment=WRECK, LEASE_SECONDS=LEASE)
    until(lambda: diary.words)
    gang.stuck.enqueue(str(diary), "unalarmed")
    until(lambda: "unalarmed-begins" in diary.words)
    held = Job.objects.get(handler="wreck.pulse")
    server.freeze()
    try:
        kills_while_frozen(pool, diary, monotonic_of(held.lease_expires))
    finally:
        server.thaw()
    back_at = time.monotonic()
    connections.close_all()
    goes_on(pool, diary, back_at, outages=1)
    # Its second run writes nothing once the gate is open.
    until(lambda: len(pids_of_pulse(diary)) == 2)
    diary.gate.touch()
    until(lambda: not Job.objects.exists())
    dead = FailedJob.objects.get()
    assert (dead.handler, dead.reason, dead.crashes) == ("gang.stuck", "timed-out", 0)
    assert set(JobResult.objects.values_list("status", "attempts")) == {("succeeded", 0)}
    assert JobResult.objects.count() == 2
    assert len(pids_of_pulse(diary)) == 2


def pids_of_pulse(diary):
    """The processes that ran wreck.pulse."""
    return {pid for pid, word, _ in diary.lines if word == "pulse"}


def kills_while_frozen(pool, diary, lease_ends):
    """The server stays frozen until a lease has ended; nobody waits for it to kill."""
    overrun, pulsing = diary.pid("unalarmed-begins"), diary.pid("pulse")
    until(lambda: not is_alive(overrun), patience=5)
    took = time.monotonic() - diary.moment("unalarmed-begins")
    assert took < TIMEOUT + GRACE + 1.0
    until(lambda: time.monotonic() > lease_ends)
    assert not is_alive(pulsing)
    last = max(float(at) for pid, _, at in diary.lines if int(pid) == pulsing)
    assert last < lease_ends
    print(f"killed {took:.2f} s after it began; fenced {lease_ends - last:.2f} s before the end")
    until(lambda: "[store.lost]" in pool.said, patience=LEASE)
