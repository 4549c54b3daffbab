"""Guards on Redis, with real workers that contend; the same on a database stands in guards."""

import json
import signal
import time
from collections import Counter
from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobs import enqueue_many
from django_jobs.backends.redis import records
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.models import FailedJob, Worker
from django_jobs.wire.envelope import Header
from django_jobs.worker import process_once
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


def altered(backend, handle, change):
    """Change what Redis keeps of a waiting job, as whoever can write to it may."""
    client, jobs = backend.store.connection.client, backend.store.layout.base("default") + "jobs"
    client.hset(jobs, handle.id, change(client.hget(jobs, handle.id)))


def unkeyed(message):
    return b"-" + message[1:]


def unreadable_for_scripts(message):
    """What Python's parser reads as before, and that of the scripts not at all."""
    line, _, body = message.partition(b"\n")
    told = json.loads(line[20:])
    told += [None] * (len(records._FIELDS) - len(told)) + ["\ud800"]
    changed = line[:20] + json.dumps(told).encode() + b"\n" + body
    assert columns_of(changed) == columns_of(message)
    return changed


def columns_of(message):
    place, about = message[1:20] + b"x", {"queue": "default", "backend": "redis"}
    return records.unpack(message, place=place, header=Header(), **about)[1].index


@pytest.mark.parametrize("change", [unkeyed, unreadable_for_scripts])
@pytest.mark.parametrize(
    "guard", [{"single_instance": "s"}, {"concurrency_key": "c"}, {"idempotency_key": "i"}]
)
def test_no_unsigned_byte_switches_a_guard_off(backend, diary, guard, change):
    keyed = gang.note.using(**guard)
    first, second = (keyed.enqueue(str(diary), word) for word in ("first", "second"))
    altered(backend, second, change)
    assert sorted(process_once().status for _ in range(2)) == ["acked", "rejected"]
    assert diary.words == ["first"]
    assert (first.status, second.status) == ("succeeded", "dead")
    assert FailedJob.objects.get(job_id=second.id).reason == "rejected-mismatch"


@pytest.mark.parametrize("time_of", [{"delay": 3600}, {"run_at": 3600}], ids=["delay", "run_at"])
@pytest.mark.parametrize("due", [b"0" * 16, None], ids=["another due", "its due"])
def test_a_job_that_was_brought_forward_does_not_run_early(backend, diary, time_of, due):
    later = {name: timedelta(seconds=seconds) for name, seconds in time_of.items()}
    if "run_at" in later:
        later["run_at"] += timezone.now()
    early = gang.note.using(**later).enqueue(str(diary), "early")
    client, base = backend.store.connection.client, backend.store.layout.base("default")
    (place,) = client.zrange(base + "later", 0, -1)
    client.zrem(base + "later", place)
    client.zadd(base + "ready", {place[:3] + (due or place[3:19]) + place[19:]: 0})
    status = process_once().status
    assert process_once().status == "empty"
    assert diary.words == []
    if status == "rejected":  # as a due is that stands before a signed schedule
        assert (early.status, due is None) == ("dead", False)
        return
    waits = backend.find(early.id)
    assert (status, waits.state) == ("snoozed", "scheduled")
    assert 3200 < waits.due / SECOND - time.time() <= 3600
