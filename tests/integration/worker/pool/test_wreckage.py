"""Handlers that will not end, end too soon, or leave a mess: the next job notices nothing."""

import fcntl
import os
import signal
import time

import pytest
from django.db import connection

from django_jobs import enqueue_many
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from testproject.shop.models import Order
from tests.integration.worker.pool.conftest import is_alive, until
from tests.integration.worker.pool.gang import jobs as gang
from tests.integration.worker.pool.wreck import jobs as wreck

pytestmark = pytest.mark.django_db(transaction=True)
TIMEOUT, GRACE = 0.4, 0.3
WRECK = {"DJANGO_SETTINGS_MODULE": "tests.integration.worker.pool.wreck.settings"}
SERVERS_ONLY = {"shuts-the-socket", "is-ended-by-the-server"}


def test_endless_handlers_side_by_side_all_end_in_time(start, diary):
    hows = list(wreck.ENDLESS)
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start(processes=len(hows) + 1, environment=WRECK, TIMEOUT=20)
    until(lambda: diary.words == ["hold-begins"] and len(pool.family) == len(hows) + 2)
    neighbour = diary.pid("hold-begins")
    for how in hows:
        wreck.endless.enqueue(str(diary), how)
    ended, deadline = {}, time.monotonic() + 15
    while len(ended) < len(hows):
        assert time.monotonic() < deadline
        for how in set(hows) - set(ended):
            if f"{how}-begins" in diary.words and has_ended(diary, how):
                ended[how] = time.monotonic() - diary.moment(f"{how}-begins")
    print({how: f"{took:.2f} s" for how, took in ended.items()})
    assert max(ended.values()) < TIMEOUT + GRACE + 1.0
    until(lambda: FailedJob.objects.count() == len(hows))
    told = set(FailedJob.objects.values_list("reason", "attempts", "crashes"))
    assert told == {("timed-out", 1, 0)}
    assert "hold-ends" not in diary.words
    diary.gate.touch()
    until(JobResult.objects.exists)
    assert diary.pid("hold-ends") == neighbour
    assert pool.process.poll() is None


def has_ended(diary, how):
    """Whether its process is gone, or it is told that its job is over."""
    bodies = FailedJob.objects.values_list("body", flat=True)
    return not is_alive(diary.pid(f"{how}-begins")) or any(how in body for body in bodies)


def test_the_loop_in_c_really_holds_the_interpreter(start, diary):
    """Or the test above would show less than it says: no other thread ran after it began."""
    wreck.endless.enqueue(str(diary), "stays-in-c")
    start(processes=1, environment=WRECK)
    until(FailedJob.objects.exists)
    began = diary.moment("stays-in-c-begins")
    beats = [float(at) for _, word, at in diary.lines if word == "beat"]
    assert len(beats) >= wreck.ENOUGH_BEATS
    assert max(beats) < began + 0.1
    assert not is_alive(diary.pid("stays-in-c-begins"))


@pytest.mark.parametrize(("how", "told"), [("aborts", "SIGABRT"), ("unhandled-alarm", "SIGALRM")])
def test_a_handler_whose_process_is_ended_by_a_signal_is_charged_and_rerun(start, diary, how, told):
    wreck.ends.enqueue(str(diary), how)
    start(processes=1, environment=WRECK)
    dead = until(FailedJob.objects.first)
    assert (dead.reason, dead.crashes, dead.attempts) == ("crashed", 2, 0)
    assert told in dead.error_message
    pids = [pid for pid, word, _ in diary.lines if word == f"{how}-begins"]
    assert len(set(pids)) == 2
    assert not any(is_alive(int(pid)) for pid in pids)


def test_poison_that_kills_nothing_fails_alone_in_one_child(start, diary):
    for how in wreck.POISONS:
        wreck.poison.enqueue(str(diary), how)
        gang.note.enqueue(str(diary), f"after-{how}")
    pool = start(processes=1, environment=WRECK)
    until(lambda: JobResult.objects.count() == len(wreck.POISONS))
    until(lambda: FailedJob.objects.count() == len(wreck.POISONS))
    assert diary.words == [word for how in wreck.POISONS for word in (how, f"after-{how}")]
    assert len({pid for pid, _, _ in diary.lines}) == 1
    told = set(FailedJob.objects.values_list("reason", "attempts", "crashes"))
    assert told == {("exhausted", 1, 0)}
    types = dict.fromkeys(
        FailedJob.objects.order_by("failed_at").values_list("error_type", flat=True)
    )
    assert list(types)[:4] == ["MemoryError", "RecursionError", "SystemExit", "KeyboardInterrupt"]
    assert not Job.objects.exists()
    assert pool.process.poll() is None


def test_what_is_done_to_a_connection_does_not_reach_the_next_job(start, diary):
    hows = [how for how in wreck.BREAKS if connection.vendor != "sqlite" or how not in SERVERS_ONLY]
    for how in hows:
        wreck.breaks.enqueue(str(diary), how)
        gang.order.enqueue(str(diary))
    start(processes=1, environment=WRECK)
    until(lambda: not Job.objects.exists())
    failed = {dead.error_message for dead in FailedJob.objects.all()}
    assert not failed
    assert diary.words == [word for how in hows for word in (f"{how}-breaks", "order")]
    assert len({pid for pid, _, _ in diary.lines}) == 1
    assert {order.email for order in Order.objects.all()} == {"tidy@example.com"}
    assert Order.objects.count() == len(hows)
    assert set(JobResult.objects.values_list("status", "attempts")) == {("succeeded", 0)}
    assert not JobAttempt.objects.exists()


@pytest.mark.parametrize(("processes", "concurrency"), [(1, 1), (1, 2), (0, 1)])
@pytest.mark.parametrize(
    ("finds", "changes"),
    [(wreck.finds, wreck.changes), (wreck.async_finds, wreck.async_changes)],
    ids=["plain", "coroutine"],
)
def test_a_job_finds_its_process_as_the_first_one_did(
    start, diary, finds, changes, processes, concurrency
):
    pool = start("--concurrency", str(concurrency), processes=processes, environment=WRECK)
    results = []
    for kind in (finds, changes, finds, changes, finds):  # with two lanes, not in the same
        results.append(kind.enqueue(str(diary)))
        until(lambda: not Job.objects.exists())
    for _ in range(2):  # each longer than a timer that was left
        wreck.naps.enqueue(str(diary))
        until(lambda: not Job.objects.exists())
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
    assert set(JobResult.objects.values_list("status", "attempts")) == {("succeeded", 0)}
    assert len({pid for pid, _, _ in diary.lines}) == 1
    first, *others = [result.result() for result in results[::2]]
    assert first["precision"] == 28
    assert others == [first, first]


@pytest.mark.only_on("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_timeout_inside_a_query_leaves_a_sound_connection(start, diary, kind, concurrency):
    names = {"plain": "waits_for_the_database", "coroutine": "async_waits_for_the_database"}
    for _ in range(2):
        getattr(wreck, names[kind]).enqueue(str(diary))
        wreck.looks.enqueue(str(diary))
        wreck.async_looks.enqueue(str(diary))
    # A coroutine waits for the thread that it has left in the query.
    start("--concurrency", str(concurrency), processes=1, environment=WRECK, KILL_GRACE=5)
    until(lambda: not Job.objects.exists())
    assert [dead.reason for dead in FailedJob.objects.all()] == ["timed-out"] * 2
    assert set(JobResult.objects.values_list("status", "attempts")) == {("succeeded", 0)}
    assert len({pid for pid, _, _ in diary.lines}) == 1


@pytest.mark.parametrize(
    ("leaves", "looks", "concurrency"),
    [
        (wreck.leaves, wreck.looks, 1),
        (wreck.leaves, wreck.looks, 2),
        (wreck.async_leaves, wreck.async_looks, 1),
    ],
    ids=["plain", "plain, in threads", "coroutine"],
)
def test_the_session_of_a_failed_run_ends_with_it(start, diary, leaves, looks, concurrency):
    start("--concurrency", str(concurrency), processes=1, environment=WRECK)
    for _ in range(3):  # with two lanes, twice in the same
        for job in (leaves, looks):  # one after the other: they hold and look for the same lock
            job.enqueue(str(diary))
            until(lambda: not Job.objects.exists())
    assert FailedJob.objects.count() == 3
    assert {dead.error_message for dead in FailedJob.objects.all()} == {"left a session behind"}
    assert [result.value for result in JobResult.objects.all()] == ["0"] * 3
    assert len({pid for pid, _, _ in diary.lines}) == 1


def test_a_coroutine_that_fails_does_not_end_the_session_of_its_neighbours(start, diary):
    relies = wreck.async_relies_on_its_session.enqueue(str(diary), str(diary.gate))
    start("--concurrency", "2", processes=1, environment=WRECK)
    until(lambda: "relies-begins" in diary.words)
    wreck.async_leaves.enqueue(str(diary))
    until(FailedJob.objects.exists)
    diary.gate.touch()
    until(lambda: not Job.objects.exists())
    assert relies.result() == 0
    looks = wreck.async_looks.enqueue(str(diary))  # and then it does end
    until(lambda: looks.status == "succeeded")
    assert looks.result() == 0
    assert len({pid for pid, _, _ in diary.lines}) == 1


@pytest.fixture
def clogged():
    """The end of a small pipe that nobody reads from."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
    yield writes
    os.close(reads)
    os.close(writes)


def test_a_log_that_is_not_read_stops_nothing(start, diary, clogged):
    gang.hold.enqueue(str(diary), str(diary.gate))
    pool = start(processes=2, environment=WRECK, output=clogged)
    until(lambda: diary.words == ["hold-begins"])
    enqueue_many([gang.note.prepare(str(diary), f"n{n}") for n in range(200)])
    until(lambda: JobResult.objects.count() == 200)
    gang.stuck.enqueue(str(diary), "unalarmed")
    until(FailedJob.objects.exists)
    assert time.monotonic() - diary.moment("unalarmed-begins") < TIMEOUT + GRACE + 1.0
    ends = Job.objects.get().lease_expires
    until(lambda: Job.objects.get().lease_expires > ends)  # it is renewed
    diary.gate.touch()
    until(lambda: not Job.objects.exists())
    pool.signal(signal.SIGTERM)
    assert pool.ended() == 0
