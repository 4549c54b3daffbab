"""Real workers on Redis: everything runs once, and the killed lose nothing."""

import contextlib
import os
import signal
import time
from collections import Counter

import pytest

from django_jobs import enqueue_many
from django_jobs.backends.registry import backends
from django_jobs.models import FailedJob, JobAttempt, QueueControl, Worker
from django_jobs.operations import health
from django_jobs.operations.workers import drain
from testproject.shop import jobs as shop
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("processes", [0, 2])
def test_every_job_runs_exactly_once(jobs, start, diary, processes):
    enqueue_many([gang.note.prepare(str(diary), f"n{number}") for number in range(300)])
    pool = start("--until-empty", "-v0", processes=processes, **jobs)
    assert pool.ended() == 0, pool.said
    assert Counter(diary.words) == {f"n{number}": 1 for number in range(300)}
    assert backends["redis"].queues() == []


@pytest.mark.parametrize("processes", [0, 4])
@pytest.mark.parametrize("limit", [{"concurrency": 2}, {"rate_limit": "2/s"}])
def test_until_empty_what_a_limit_holds_up_is_still_run(jobs, start, diary, limit, processes):
    QueueControl.objects.create(backend="redis", queue="default", **limit)
    enqueue_many([gang.nap.prepare(str(diary), 0.02, f"n{number}") for number in range(6)])
    assert start("--until-empty", processes=processes, **jobs).ended() == 0
    assert backends["redis"].queues() == []


@pytest.mark.parametrize("processes", [0, 2])
def test_until_empty_a_place_that_another_worker_has_is_not_waited_for(
    jobs, start, diary, processes
):
    QueueControl.objects.create(backend="redis", queue="default", concurrency=1)
    gang.hold.enqueue(str(diary), str(diary.gate))
    gang.note.enqueue(str(diary))
    start(processes=1, **jobs)
    until(lambda: "hold-begins" in diary.words)
    gang.note.using(delay=3600, queue="later").enqueue(str(diary))
    pool = start("--until-empty", processes=processes, **jobs)
    assert pool.ended() == 0
    said = pool.said
    assert "left in the queue default: 1 job that another worker runs" in said
    assert "left in the queue default: 1 job held up, for the queue lets 1 run at a time" in said
    assert "left in the queue later: 1 job not due yet; the next one is due at " in said


def test_results_retries_and_dead_letters_are_as_on_the_database(jobs, start, diary):
    handle = gang.large.enqueue(str(diary), "word", 3)
    flaky = shop.flaky.using(retry="none").enqueue()
    doomed = shop.doomed.using(max_retries=1, retry="none").enqueue()
    assert start("--until-empty", **jobs).ended() == 0
    assert handle.result() == "rrr"
    assert (flaky.status, flaky.result()) == ("succeeded", 3)
    assert doomed.status == "dead"
    dead = FailedJob.objects.get(job_id=doomed.id)
    assert (dead.backend, dead.reason, dead.attempts) == ("redis", "exhausted", 2)
    assert list(JobAttempt.objects.filter(job_id=doomed.id).values_list("number", flat=True)) == [
        1,
        2,
    ]
    assert backends["redis"].account(doomed.id).failed_attempts == 2


def test_an_idle_worker_starts_a_new_job_at_once(jobs, start, diary):
    settings = {**jobs, "POLL_INTERVAL": 30}
    pool = start(**settings)
    gang.note.enqueue(str(diary), "first")
    until(lambda: diary.words == ["first"])
    for number in range(5):
        began = time.monotonic()
        gang.note.enqueue(str(diary), f"n{number}")
        until(lambda number=number: f"n{number}" in diary.words)
        assert time.monotonic() - began < 10.0  # it polls every thirty seconds
    gang.note.using(delay=1.0).enqueue(str(diary), "later")
    began = time.monotonic()
    until(lambda: "later" in diary.words)
    assert 0.9 < time.monotonic() - began < 15.0
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0


def test_a_killed_child_is_replaced_and_its_job_runs_again(jobs, start, diary):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start(processes=1, **jobs)
    until(lambda: diary.words == ["hold-begins"])
    first = diary.pid("hold-begins")
    os.kill(first, signal.SIGKILL)
    until(lambda: len(diary.words) == 2)
    assert not is_alive(first)
    diary.gate.touch()
    until(lambda: diary.words[-1] == "hold-ends")
    assert int(diary.lines[-1][0]) != first
    until(lambda: backends["redis"].stats("default").running == 0)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0


def test_a_killed_worker_loses_nothing(jobs, start, diary):
    enqueue_many([gang.nap.prepare(str(diary), 0.02, f"n{number}") for number in range(60)])
    killed = start(**jobs)
    until(lambda: len(diary.words) > 10)
    for pid in [killed.pid, *killed.family]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    stats = backends["redis"].stats("default")
    assert stats.ready + stats.running > 0
    heir = start(**jobs)
    until(lambda: backends["redis"].queues() == [])
    heir.signal(signal.SIGTERM)
    assert heir.ended() == 0
    ended = Counter(word for word in diary.words if word.endswith("-ends"))
    assert set(ended) == {f"n{number}-ends" for number in range(60)}


@pytest.mark.parametrize("places", [1, 3])
def test_workers_that_contend_for_a_key_never_overlap_more_than_it_allows(
    jobs, start, diary, places
):
    limited = gang.nap.using(concurrency_key="disk", concurrency=places)
    seconds = 0.04 * places**2  # enough for others to come beside
    enqueue_many([limited.prepare(str(diary), seconds, f"n{number}") for number in range(24)])
    workers = [start("-v0", **jobs) for _ in range(3)]
    until(lambda: backends["redis"].queues() == [], patience=60.0)
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.ended() for worker in workers] == [0, 0, 0]
    running = most = 0
    for _, word, _ in diary.lines:
        running += 1 if word.endswith("-begins") else -1
        most = max(most, running)
    assert most == places
    ended = Counter(word for word in diary.words if word.endswith("-ends"))
    assert ended == {f"n{number}-ends": 1 for number in range(24)}


def test_operators_see_the_workers_of_redis(jobs, start):
    assert [one.kind for one in health.find_problems(health.HealthLimits())] == ["no-worker"]
    pool = start(**jobs)
    until(Worker.objects.exists)
    row = Worker.objects.get()
    assert (row.backend, row.pid) == ("redis", pool.pid)
    assert health.find_problems(health.HealthLimits()) == []
    drain(str(row.pk), by="a test")
    assert pool.ended() == 0
    assert not Worker.objects.exists()


@pytest.mark.parametrize("processes", [0, 2])
def test_a_worker_goes_on_without_the_database_that_operators_look_in(
    jobs, start, diary, processes, monkeypatch
):
    monkeypatch.setenv("GANG_LOST_DATABASE", "1")
    enqueue_many([gang.note.prepare(str(diary), f"n{number}") for number in range(20)])
    pool = start("--until-empty", processes=processes, **jobs)
    assert pool.ended() == 0, pool.said
    assert len(diary.words) == 20
