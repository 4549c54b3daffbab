"""A rate limit counts starts: as handlers saw them, beside long jobs of another queue."""

import os
import re
import signal
import time

import pytest

from django_jobs import enqueue_many
from django_jobs.backends.registry import backends
from tests.integration.worker.pool.conftest import children_of, until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = pytest.mark.django_db(transaction=True)

LIMIT = 20
QUEUES = {"limited": {"RATE_LIMIT": f"{LIMIT}/s"}, "slow": {}}
# Between the worker's last look at the clock and the first line of a handler, a busy machine may
# let others go first; what was fetched ahead and waited started up to half a second too late.
PREEMPTED = 0.1
MODES = {
    "workers of two processes": [{"processes": 2}, {"processes": 2}],
    "one process, one job at a time": [{"processes": 1}],
    "several jobs at once in a process": [{"processes": 1, "concurrency": 4}],
    "no processes of their own": [{"processes": 0}, {"processes": 0}],
}


def starts(diary):
    begun = re.compile(r"short\d+(-begins)?")
    return sorted(float(at) for _, word, at in diary.lines if begun.fullmatch(word))


def most_within(seconds, moments):
    """By brute force: the most moments in a stretch that begins with one of them."""
    return max(sum(first <= at < first + seconds for at in moments) for first in moments)


def put(diary, *, short, long=0, first=0):
    """Short jobs of a limited queue, and long ones of another that come and go beside them."""
    plain, coroutine = (one.using(queue="limited") for one in (gang.note, gang.async_nap))
    long_job = gang.nap.using(queue="slow")
    enqueue_many(plain.prepare(str(diary), f"short{n}") for n in range(first, first + short, 2))
    enqueue_many(
        coroutine.prepare(str(diary), 0, f"short{n}") for n in range(first + 1, first + short, 2)
    )
    enqueue_many(long_job.prepare(str(diary), 0.4, f"long{n}") for n in range(long))


def started(start, workers, **settings):
    for worker in workers:
        most = worker.get("concurrency", 1)
        options = ["--concurrency", str(most)] if most > 1 else []
        yield start("-v0", *options, processes=worker["processes"], **settings)


def stopped(pools):
    for pool in pools:
        pool.signal(signal.SIGTERM)
    return [pool.ended() for pool in pools]


def check_no_window_holds_more(start, diary, mode, **settings):
    put(diary, short=4 * LIMIT, long=14)
    pools = list(started(start, MODES[mode], **settings))
    until(lambda: len(starts(diary)) == 4 * LIMIT, patience=90.0)
    assert stopped(pools) == [0] * len(pools)
    assert any(word.startswith("long") for word in diary.words)
    moments = starts(diary)
    assert most_within(1.0 - PREEMPTED, moments) <= LIMIT
    # A small count would pass as well where next to nothing is let through.
    assert most_within(2.0, moments) > LIMIT


def check_most_of_it_is_used(start, diary, **settings):
    """Over five seconds in a row; on a busy machine it may take a while until there are such."""
    put(diary, short=40 * LIMIT)
    gang.hold.using(queue="slow").enqueue(str(diary), str(diary.gate))
    pools = list(started(start, [{"processes": 3}], **settings))
    until(lambda: most_within(5.0, [0.0, *starts(diary)]) >= 0.95 * 5 * LIMIT, patience=60.0)
    diary.gate.touch()
    assert stopped(pools) == [0]
    assert most_within(1.0 - PREEMPTED, starts(diary)) <= LIMIT


def check_what_a_freeze_made_late_starts_anew(start, diary, backend, **settings):
    """Children are frozen with a window's worth of jobs, and go on when that window is over."""
    put(diary, short=LIMIT)
    (pool,) = started(start, [{"processes": 2}], **settings)
    until(lambda: len(starts(diary)) == LIMIT)  # it knows by now that they are short
    until(lambda: backend.stats("limited").running == 0)
    children = children_of(pool.fork_server)
    for child in children:
        os.kill(child, signal.SIGSTOP)
    put(diary, short=3 * LIMIT, first=LIMIT)
    until(lambda: backend.stats("limited").running > 0)
    over = time.monotonic() + 1.2
    until(lambda: time.monotonic() > over)
    assert len(starts(diary)) == LIMIT
    for child in children:
        os.kill(child, signal.SIGCONT)
    until(lambda: len(starts(diary)) == 4 * LIMIT, patience=60.0)
    assert stopped([pool]) == [0]
    assert most_within(1.0 - PREEMPTED, starts(diary)) <= LIMIT
    assert len({word for _, word, _ in diary.lines}) == len(diary.lines)  # each ran once


@pytest.mark.parametrize("mode", MODES)
def test_no_window_holds_more_starts_than_the_limit_beside_long_jobs(start, diary, mode):
    check_no_window_holds_more(start, diary, mode, QUEUES=QUEUES)


def test_at_least_95_percent_of_a_rate_limit_are_used_while_a_long_job_runs(start, diary):
    check_most_of_it_is_used(start, diary, QUEUES=QUEUES)


def test_jobs_that_a_freeze_made_late_do_not_start_beside_those_of_the_next_window(start, diary):
    backend = backends["database"]
    check_what_a_freeze_made_late_starts_anew(start, diary, backend, QUEUES=QUEUES)
