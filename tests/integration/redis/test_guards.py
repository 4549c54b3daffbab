"""Guards on Redis, with real workers that contend; the same on a database stands in guards."""

import signal
from collections import Counter

import pytest

from django_jobs import enqueue_many
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.models import Worker
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
LIMIT = 10


def drained(start, **settings):
    """Let three workers with two processes each end all there is."""
    workers = [start("-v0", **settings) for _ in range(3)]
    until(lambda: Worker.objects.count() == len(workers), patience=60.0)
    until(lambda: backends["redis"].queues() == [], patience=60.0)
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.ended() for worker in workers] == [0, 0, 0]


def most_in_a_window(moments, window):
    """By brute force: the most in a window that begins with one of them."""
    return max(sum(first <= one < first + window for one in moments) for first in moments)


def test_no_window_holds_more_than_the_limit_of_a_queue(jobs, start, diary):
    enqueue_many([gang.claimed.prepare(str(diary)) for _ in range(4 * LIMIT)])
    drained(start, **jobs, QUEUES={"default": {"RATE_LIMIT": f"{LIMIT}/s"}})
    claims = sorted(int(word.removeprefix("claimed-")) for word in diary.words)
    assert len(claims) == 4 * LIMIT
    assert most_in_a_window(claims, SECOND) <= LIMIT
    # All of it may be used, and workers that look for jobs use most of it.
    assert claims[-1] - claims[0] < 20 * SECOND


def test_the_work_of_a_key_is_done_once_whoever_contends(jobs, start, diary):
    names = [f"k{number % 10}" for number in range(60)]
    prepared = [
        gang.nap.using(idempotency_key=name).prepare(str(diary), 0.02, name) for name in names
    ]
    handles = enqueue_many(prepared)
    drained(start, **jobs)
    ended = Counter(word for word in diary.words if word.endswith("-ends"))
    assert ended == {f"k{number}-ends": 1 for number in range(10)}
    assert Counter(handle.status for handle in handles) == {"succeeded": 10, "skipped": 50}


def test_single_instances_never_overlap_whoever_contends(jobs, start, diary):
    single = gang.nap.using(single_instance=True, name="report")
    enqueue_many([single.prepare(str(diary), 0.03, f"n{number}") for number in range(30)])
    drained(start, **jobs)
    running = most = 0
    for word in diary.words:
        running += 1 if word.endswith("-begins") else -1
        most = max(most, running)
    assert (most, len(diary.words)) == (1, 60)
