"""A pool at work: what runs where, how often, and how it ends. Processes and signals are real."""

import signal
import time
from collections import Counter

import pytest
from django.db import connection

from django_jobs import enqueue_many
from django_jobs.models import Job, JobResult, JobState, Worker
from testproject.shop.models import Order
from tests.integration.worker.pool.conftest import children_of, is_alive, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)


def test_five_hundred_jobs_run_exactly_once_on_two_children(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{number}") for number in range(500)])
    pool = start("--until-empty", "-v0")
    assert pool.ended() == 0, pool.said
    assert Counter(diary.words) == {f"n{number}": 1 for number in range(500)}
    assert JobResult.objects.filter(status="succeeded").count() == 500
    assert not Job.objects.exists()
    pids = {pid for pid, _, _ in diary.lines}
    assert len(pids) == 2
    assert str(pool.pid) not in pids


def test_large_bodies_and_large_results_do_not_wedge_it(start, diary):
    padding = "p" * 200_000
    enqueue_many([gang.note.prepare(str(diary), "small") for _ in range(30)])
    jobs = [gang.large.prepare(str(diary), f"n{n}", 200_000, padding) for n in range(60)]
    enqueue_many(jobs)
    assert start("--until-empty", "-v0").ended() == 0
    assert len(set(diary.words)) == 61
    assert len(diary.words) == 90


@pytest.mark.parametrize("thread", ["", "1"], ids=["forked", "started afresh"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_default_timeout_of_sockets_is_none_of_its_business(start, diary, thread, concurrency):
    seconds = 0.2
    gang.note.enqueue(str(diary), "first")
    loud = {"GANG_LOUD": "1", "GANG_THREAD": thread, "GANG_SOCKET_TIMEOUT": str(seconds)}
    pool = start("--concurrency", str(concurrency), processes=1, environment=loud)
    until(lambda: diary.words == ["first"])
    # First the child is idle for longer than that, and then the parent hears nothing.
    gang.nap.using(delay=10 * seconds).enqueue(str(diary), 3 * seconds)
    until(lambda: not Job.objects.exists())
    assert len({pid for pid, _, _ in diary.lines}) == 1
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert "worker.child_died" not in pool.said
    assert "Traceback" not in pool.said


@pytest.mark.parametrize(("processes", "concurrency"), [(0, 1), (1, 1), (1, 2)])
def test_what_a_run_sets_in_its_context_ends_with_it(start, diary, processes, concurrency):
    options = ("--concurrency", str(concurrency)) if processes else ()
    handles = [gang.surroundings.enqueue(str(diary), f"n{number}") for number in range(4)]
    assert start("--until-empty", *options, processes=processes).ended() == 0
    first, *others = [handle.result() for handle in handles]
    assert first[0] == "nothing"
    assert others == [first] * 3
    assert len({pid for pid, _, _ in diary.lines}) == 1


def test_limits_hold_to_the_job(start, diary):
    enqueue_many([gang.note.prepare(str(diary), f"n{number}") for number in range(40)])
    assert start("--once").ended() == 0
    assert len(diary.words) == 1
    assert start("--max-jobs", "17").ended() == 0
    assert len(diary.words) == 18
    assert Job.objects.filter(state=JobState.READY, attempts=0).count() == 22
    by_time = start("--max-seconds", "0.3", "--queue", "nothing-here")
    assert by_time.ended() == 0
    assert "0.3 seconds are over" not in by_time.said  # an INFO record, and no logging set up


def test_new_queues_and_delayed_jobs(start, diary):
    gang.note.enqueue(str(diary), "first")
    gang.note.using(queue="another").enqueue(str(diary), "elsewhere")
    gang.note.using(delay=3600).enqueue(str(diary), "later")
    assert start("--until-empty").ended() == 0
    assert sorted(diary.words) == ["elsewhere", "first"]


def test_each_queue_has_its_own_lease(start, diary):
    gang.hold.using(queue="patient").enqueue(str(diary), str(diary.gate))
    gang.hold.enqueue(str(diary), str(diary.gate), "other")
    start(QUEUES={"patient": {"LEASE_SECONDS": 500}, "default": {}})
    until(lambda: len(diary.words) == 2)
    ends = dict(Job.objects.values_list("queue", "lease_expires"))
    assert (ends["patient"] - ends["default"]) / 1e6 == pytest.approx(497, abs=2)
    diary.gate.touch()
    until(lambda: JobResult.objects.count() == 2)


def test_the_workers_row_tells_its_processes(start):
    pool = start(processes=3)
    row = until(Worker.objects.first)
    assert (row.pid, row.processes) == (pool.pid, 3)
    until(lambda: len(pool.family) == 4)
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert not Worker.objects.exists()


def test_without_processes_it_takes_the_cores(start, diary):
    pool = start(processes=None)
    row = until(Worker.objects.first)
    assert row.processes >= 1
    pool.signal(signal.SIGINT)
    assert pool.ended() == 0


def test_a_bad_number_of_processes_is_a_usage_error(start):
    pool = start(processes=-1)
    assert pool.ended() == 2
    assert "whole number" in pool.said


def test_nobody_waits_behind_a_busy_child_while_another_is_idle(start, diary):
    enqueue_many([gang.nap.prepare(str(diary), 0.002, f"short{n}") for n in range(40)])
    gang.nap.enqueue(str(diary), 3.0, "long")
    enqueue_many([gang.nap.prepare(str(diary), 0.002, f"short{n}") for n in range(40, 80)])
    assert start("--until-empty", "-v0").ended() == 0
    assert len(set(diary.words)) == len(diary.words) == 162
    last = max(diary.moment(f"short{n}-ends") for n in range(80))
    assert last < diary.moment("long-begins") + 1.5


@pytest.mark.long
def test_a_handler_five_leases_long_runs_once_beside_a_second_worker(start, diary):
    gang.nap.enqueue(str(diary), 15.1)
    first = start("--max-jobs", "1", LEASE_SECONDS=3)
    until(lambda: diary.words)
    second = start(LEASE_SECONDS=3)
    assert first.ended() == 0
    assert diary.words == ["nap-begins", "nap-ends"]
    job = JobResult.objects.get()
    assert (job.status, job.attempts) == ("succeeded", 0)
    assert second.process.poll() is None


def test_a_transaction_left_open_does_not_hurt_the_next(start, diary):
    gang.messy.enqueue(str(diary))
    gang.order.enqueue(str(diary))
    assert start("--until-empty", processes=1).ended() == 0
    assert diary.words == ["messy", "order"]
    assert [order.email for order in Order.objects.all()] == ["tidy@example.com"]
    assert JobResult.objects.filter(status="succeeded").count() == 2


def test_an_atomic_job_commits_with_its_ack_or_not_at_all(start, diary):
    gang.atomic.enqueue(str(diary))
    gang.atomic.using(max_crashes=1).enqueue(str(diary), "dies")
    assert start("--until-empty", LEASE_SECONDS=15).ended() == 0
    assert Order.objects.count() == 1
    assert JobResult.objects.get().status == "succeeded"


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_hook_that_raises_after_the_commit_ends_no_child(start, diary, concurrency):
    for end in ("hook-raises", "hook-exits"):
        gang.atomic.enqueue(str(diary), end)
    pool = start(
        *("--concurrency", str(concurrency), "--until-empty"),
        processes=1,
        environment={"GANG_LOUD": "1"},
        LEASE_SECONDS=15,
    )
    assert pool.ended() == 0
    assert sorted(diary.words) == ["atomic", "atomic", "next-hook", "next-hook"]
    assert len({pid for pid, _, _ in diary.lines}) == 1
    assert [result.status for result in JobResult.objects.all()] == ["succeeded"] * 2
    assert pool.said.count("commit_hook.failed") == 2
    assert "worker.child_died" not in pool.said


def test_children_inherit_neither_each_others_ends_nor_a_terminal(start, diary):
    gang.inventory.enqueue(str(diary))
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start()
    told = until(lambda: [word for word in diary.words if "=" in word])[0].split(",")
    pids = children_of(pool.fork_server)
    assert len(pids) == 2
    assert "0=/dev/null" in told
    assert sum("memfd" in entry for entry in told) <= 1  # its marks
    sockets = sum("=socket:" in entry for entry in told)
    assert sockets <= 1 + (connection.vendor != "sqlite")
    diary.gate.touch()


def test_an_idle_pool_leaves_nothing_behind(start):
    pool = start()
    until(lambda: len(pool.family) == 3)
    family = pool.family
    began = time.monotonic()
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert time.monotonic() - began < 3
    assert not any(is_alive(pid) for pid in family)
