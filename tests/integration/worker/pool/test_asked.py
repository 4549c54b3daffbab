"""What running jobs and workers do when somebody asks them to stop, and why jobs wait for them."""

import signal
import time

import pytest

from django_jobs.models import Job, JobAttempt, JobResult, QueueMinute, Worker
from django_jobs.operations.cancel import cancel_or_ask_to_stop
from django_jobs.operations.explain import explain
from django_jobs.operations.overview import live
from django_jobs.operations.workers import drain
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)


def ended(handle):
    return until(lambda: JobResult.objects.filter(pk=handle.id).first())


def kinds(handle):
    return [cause.kind for cause in explain(handle.id).causes]


@pytest.mark.parametrize(
    ("processes", "how", "status", "said"),
    [
        (1, "calls-off", "cancelled", "asked to stop"),
        (0, "looks", "cancelled", "and it ended with RuntimeError: half done"),
        (1, "looks", "cancelled", "and it ended with RuntimeError: half done"),
        (1, "returns", "succeeded", ""),
    ],
)
def test_a_handler_hears_that_it_is_to_stop(start, diary, processes, how, status, said):
    handle = gang.watch.using(max_retries=5).enqueue(str(diary), how)
    pool = start(processes=processes, KILL_GRACE=20)
    until(lambda: "watch-begins" in diary.words)
    child = diary.pid("watch-begins")
    assert cancel_or_ask_to_stop(handle.id, by="ada").status == "asked"
    result = ended(handle)
    assert result.status == status
    assert said in result.output
    assert is_alive(child)
    assert not JobAttempt.objects.exists()
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0


def test_a_busy_worker_hears_it_long_before_its_house_is_due(start, diary):
    handle = gang.watch.enqueue(str(diary), "calls-off")
    pool = start(processes=1, KILL_GRACE=20, LEASE_SECONDS=90)
    until(lambda: "watch-begins" in diary.words)
    began = time.monotonic()
    cancel_or_ask_to_stop(handle.id, by="ada")
    assert ended(handle).status == "cancelled"
    assert time.monotonic() - began < 12.0
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0


@pytest.mark.parametrize("concurrency", [1, 2])
def test_one_that_does_not_listen_is_stopped_and_not_run_again(start, diary, concurrency):
    handle = gang.hold.using(max_retries=5).enqueue(str(diary), str(diary.gate))
    pool = start("--concurrency", str(concurrency), processes=1)
    until(lambda: "hold-begins" in diary.words)
    child = diary.pid("hold-begins")
    cancel_or_ask_to_stop(handle.id, by="ada")
    assert ended(handle).status == "cancelled"
    until(lambda: not is_alive(child))
    gang.note.enqueue(str(diary))
    until(lambda: "ran" in diary.words)
    assert diary.words.count("hold-begins") == 1
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0


def test_a_coroutine_is_cancelled_beside_others_that_go_on(start, diary):
    handle = gang.awatch.enqueue(str(diary))
    gang.awatch.enqueue(str(diary), "other")
    pool = start("--concurrency", "2", processes=1)
    until(lambda: {"awatch-begins", "other-begins"} <= set(diary.words))
    cancel_or_ask_to_stop(handle.id, by="ada")
    assert ended(handle).status == "cancelled"
    assert is_alive(diary.pid("other-begins"))
    assert live(state="running").count() == 1
    assert pool.stop_at_once() == 143


@pytest.mark.parametrize("processes", [0, 1])
def test_a_worker_that_drains_ends_what_it_runs_and_gives_back_the_rest(start, diary, processes):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start(processes=processes)
    until(lambda: "hold-begins" in diary.words)
    waiting = gang.note.enqueue(str(diary))
    worker = until(Worker.objects.first)
    assert drain(str(worker.pk), by="ada").status == "asked"
    assert "no-worker" in kinds(waiting)
    diary.gate.touch()
    assert pool.ended() == 0
    assert "hold-ends" in diary.words
    assert not Worker.objects.exists()
    assert set(Job.objects.values_list("attempts", "crashes", "suspect")) <= {(0, 0, False)}


def test_counts_of_a_minute_are_added_up(start, diary):
    for _ in range(5):
        gang.note.enqueue(str(diary))
    gang.die.enqueue(str(diary), "raises")
    assert start("--until-empty").ended() == 0
    rows = QueueMinute.objects.filter(queue="default")
    assert sum(row.succeeded for row in rows) >= 5
    assert sum(row.claimed for row in rows) >= 6
    assert all(row.run_microseconds > 0 for row in rows)


def test_causes_that_workers_make(start, diary):
    """A worker on another queue, a lease that it holds, a key, and a worker that was killed."""
    holder = gang.hold.using(queue="mail", concurrency_key="k").enqueue(str(diary), str(diary.gate))
    waits = gang.note.using(queue="mail", concurrency_key="k").enqueue(str(diary))
    unheard = gang.note.using(queue="reports").enqueue(str(diary))
    pool = start("--queue", "mail", processes=2, LEASE_SECONDS=3)
    until(lambda: "hold-begins" in diary.words)
    assert kinds(holder) == ["leased"]
    until(lambda: kinds(waits) == ["key-held"])
    until(lambda: kinds(unheard) == ["no-worker"])
    family = pool.family
    pool.signal(signal.SIGKILL)
    pool.process.wait()
    until(lambda: not any(is_alive(pid) for pid in family))
    until(lambda: "lease-ended" in kinds(holder))
