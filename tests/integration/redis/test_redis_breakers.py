"""Breakers of queues and handlers whose jobs are in Redis."""

import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_jobs import enqueue_many, job, signals
from django_jobs.backends.breakers import Circuit
from django_jobs.backends.redis import breakers as breaking
from django_jobs.backends.redis.breakers import Kept
from django_jobs.backends.redis.claim import TURNS
from django_jobs.backends.redis.connection import RedisClock
from django_jobs.backends.registry import backends
from django_jobs.clock import ManualClock
from django_jobs.models import FailedJob, OperatorEvent
from django_jobs.operations.explain import explain
from django_jobs.worker import process_once

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).parents[3]
COOLDOWN = 60
calls = []


@job(key="redis-breakers.work", max_retries=100, retry="fixed")
def work(how="succeed"):
    calls.append(how)
    if how == "fail":
        raise RuntimeError("the other side is down")


@pytest.fixture(autouse=True)
def breakers(jobs):
    calls.clear()
    breaker = {"THRESHOLD": 3, "COOLDOWN": COOLDOWN, "HANDLERS": {"redis-breakers.work": {}}}
    settings = {**jobs, "RETRY": [0], "CIRCUIT_BREAKER": breaker}
    with override_settings(DJANGO_JOBS=settings):
        yield


@pytest.fixture
def clock(breakers):
    clock = ManualClock()
    backends["redis"].clock = RedisClock(clock)
    return clock


@pytest.fixture
def told():
    told = []

    def hear(sender, signal, **facts):
        told.append((facts["kind"], facts["subject"], facts["failures"]))

    signals.breaker_opened.connect(hear)
    yield told
    signals.breaker_opened.disconnect(hear)


def look():
    """As half a second later."""
    claims = backends["redis"]._claims
    claims.breakers._looked_at = float("-inf")
    claims._broken._until.clear()


def once(queue="default"):
    look()
    return process_once(queue).status


def forge(server, count):
    """Jobs whose bodies somebody changed."""
    base = backends["redis"].store.layout.base("default")
    for _ in range(count):
        handle = work.enqueue()
        raw = server.client.hget(base + "jobs", handle.id)
        server.client.hset(base + "jobs", handle.id, raw.replace(b'"default"', b'"elsewhere"'))


def open_by_rejections(server):
    forge(server, 10)
    assert {once() for _ in range(10)} == {"rejected"}


def run(*arguments):
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_ten_rejections_in_a_row_close_a_queue_and_nobody_loses_an_attempt(server, clock, told):
    open_by_rejections(server)
    assert told == [("queue", "default", 10)]
    handle = work.enqueue()
    work.using(queue="mail").enqueue()
    assert [once() for _ in range(3)] == ["circuit-open"] * 3
    assert "breaker-open" in {cause.kind for cause in explain(handle.id).causes}
    header = backends["redis"].find(handle.id).message.header
    assert (header.attempts, header.deliveries) == (0, 0)
    assert 0 < backends["redis"].next_due_in(["default"]) <= COOLDOWN
    look()
    assert process_once(["default", "mail"]).queue == "mail"
    assert once() == "circuit-open"
    clock.advance(COOLDOWN)
    assert [once(), once()] == ["acked", "empty"]
    assert calls == ["succeed"] * 2


def test_one_job_tries_and_what_it_comes_to_decides(server, clock, told):
    open_by_rejections(server)
    clock.advance(COOLDOWN)
    forge(server, 1)
    work.enqueue()
    assert [once(), once()] == ["rejected", "circuit-open"]  # anew, for another while
    assert len(told) == 2
    clock.advance(COOLDOWN)
    assert [once(), once()] == ["acked", "empty"]
    assert server.client.hgetall(backends["redis"].store.layout.breakers) == {}


def test_while_one_tries_no_other_does(server, clock):
    open_by_rejections(server)
    clock.advance(COOLDOWN)
    for _ in range(3):
        work.enqueue()
    backend = backends["redis"]
    look()
    (probe,) = backend.fetch(["default"], 10, 4)
    assert probe.probe
    for _ in range(3):
        look()
        assert backend.fetch(["default"], 10, 4) == []
    # Its worker is lost: when the lease ends, another one may try.
    clock.advance(4.1)
    look()
    (another,) = backend.fetch(["default"], 10, 60)
    assert (another.probe, another.id != probe.id) == (True, True)
    # What runs for long was not refused, and the queue goes on.
    clock.advance(6)
    look()
    assert len(backend.fetch(["default"], 10, 60)) == 1


def test_who_looks_for_a_job_to_try_has_the_right_alone(server, clock):
    open_by_rejections(server)
    clock.advance(COOLDOWN)
    work.enqueue()
    backend, others = backends["redis"], []
    breakers = backend._claims.breakers

    def take(token):
        look()  # another worker, while this one has the right and no job yet
        others.append(breakers.let_one_pass("default", others.append))
        return []

    look()
    assert breakers.let_one_pass("default", take) == []
    assert others == [[]]
    assert once() == "acked"


def test_a_right_to_try_that_comes_to_nothing_is_given_back(server, clock):
    open_by_rejections(server)
    clock.advance(COOLDOWN)
    assert [once(), once()] == ["empty", "empty"]
    work.enqueue()
    assert once() == "acked"


def test_failures_in_a_row_open_the_breaker_of_a_handler(server, clock, told):
    for _ in range(3):
        work.using(max_retries=0).enqueue("fail")
    assert [once() for _ in range(3)] == ["dead-lettered"] * 3
    assert told == [("handler", "redis-breakers.work", 3)]
    handles = [work.enqueue() for _ in range(2)]
    assert once() == "empty"
    assert calls == ["fail"] * 3
    for handle in handles:
        seen = backends["redis"].find(handle.id)
        assert (seen.state, seen.message.header.deliveries) == ("scheduled", 0)
    clock.advance(COOLDOWN)
    assert [once(), once(), once()] == ["acked", "acked", "empty"]
    assert FailedJob.objects.count() == 3


def test_an_operator_sees_and_closes_it(server, clock):
    open_by_rejections(server)
    work.enqueue()
    status = json.loads(run("jobs_status", "--json"))
    assert [one["breaker"] for one in status["queues"] if one["queue"] == "default"] == ["open"]
    (breaker,) = status["breakers"]
    assert (breaker["backend"], breaker["kind"], breaker["name"]) == ("redis", "queue", "default")
    assert breaker["state"] == "open"
    assert json.loads(run("jobs_queue", "reset-breaker", "default", "--json"))["changed"]
    assert not json.loads(run("jobs_queue", "reset-breaker", "default", "--json"))["changed"]
    assert OperatorEvent.objects.get().action == "reset-breaker"
    assert once() == "acked"


def test_what_holds_a_queue_back_is_told(server):
    work.enqueue()
    run("jobs_queue", "pause", "default")
    backends["redis"]._claims._limits._look_at = 0.0
    assert once() == "paused"
    run("jobs_queue", "resume", "default")
    run("jobs_queue", "set", "default", "rate_limit=1/h")
    backends["redis"]._claims._limits._look_at = 0.0
    work.enqueue()
    assert [once(), once()] == ["acked", "rate-limited"]


@pytest.mark.parametrize("text", [b"", b"nonsense", b"[1,2]", b'["x",null,"","","",0]', b"7"])
def test_what_cannot_be_read_has_counted_nothing(text):
    assert Kept.read(text) == Kept()
    kept = Kept(Circuit(3, 12, "abc"), "job", "queue", 7)
    assert Kept.read(kept.text.encode()) == kept


COUNTING = """
import sys, django
from django.conf import settings
settings.configure(INSTALLED_APPS=["django_jobs"], SECRET_KEY="x" * 50, DJANGO_JOBS={
    "CIRCUIT_BREAKER": {"REJECTIONS": 1000000}})
django.setup()
from django_jobs.backends.breakers import CLOSED
from django_jobs.backends.shared_breakers import rule_of_queue
from django_jobs.backends.redis import RedisBackend
backend = RedisBackend("redis", {"URL": sys.argv[1]})
print("ready", flush=True)
sys.stdin.readline()
rule = rule_of_queue("crowded")
for _ in range(100):
    backend._claims.breakers._change(
        rule, lambda circuit, now: circuit.failed("", now, rule.threshold), make=True)
"""


@pytest.mark.long
def test_no_count_of_processes_that_contend_is_lost(server):
    command = [sys.executable, "-c", COUNTING, server.url]
    crowd = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    for one in crowd:
        assert one.stdout.readline() == b"ready\n"
    for one in crowd:
        one.stdin.write(b"\n")
        one.stdin.flush()
    assert Counter(one.wait(60) for one in crowd) == {0: 6}
    for one in crowd:
        one.stdin.close()
        one.stdout.close()
    text = server.client.hget(backends["redis"].store.layout.breakers, "queue:crowded")
    assert Kept.read(text).circuit.failures == 600


@job(key="redis-breakers.sound")
def sound(how=""):
    calls.append(how)


def open_by_failures():
    for _ in range(3):
        work.using(max_retries=0, priority=50).enqueue("fail")
    assert [once() for _ in range(3)] == ["dead-lettered"] * 3
    look()


def test_a_fetch_beside_many_jobs_of_a_broken_handler_is_short_and_says_so(
    server, clock, monkeypatch
):
    open_by_failures()
    monkeypatch.setattr(breaking, "PUT_OFF_AT_ONCE", 5)
    backend = backends["redis"]
    enqueue_many(work.prepare() for _ in range(40))
    handle = sound.enqueue()
    assert backend.fetch(["default"], 1, 30) == []
    assert backend.fetch_ended_early
    assert backend.stats("default").scheduled == TURNS * 6
    (lease,) = backend.fetch(["default"], 1, 30)
    assert (lease.id, backend.fetch_ended_early) == (handle.id, False)
    assert once() == "empty"


def test_one_cycle_passes_over_all_of_them(server, clock, monkeypatch):
    open_by_failures()
    monkeypatch.setattr(breaking, "PUT_OFF_AT_ONCE", 5)
    enqueue_many(work.prepare() for _ in range(40))
    sound.enqueue("after them")
    assert once() == "acked"
    assert calls[-1] == "after them"


def test_those_with_one_key_are_put_off_together_and_hold_up_no_other_handler(server, clock):
    backend = backends["redis"]
    one = sound.using(concurrency_key="k").enqueue()
    enqueue_many(work.using(concurrency_key="k").prepare() for _ in range(50))
    last = sound.using(concurrency_key="k").enqueue()
    (first,) = backend.fetch(["default"], 1, 30)
    assert first.id == one.id
    assert backend.fetch(["default"], 99, 30) == []
    open_by_failures()
    backend.ack([first])
    (lease,) = backend.fetch(["default"], 1, 30)
    assert lease.id == last.id
    assert backend.stats("default").scheduled == 50
    backend.ack([lease])
    clock.advance(COOLDOWN)
    assert once() == "acked"


def test_what_cannot_be_read_or_runs_is_left_where_it_is(server, clock):
    backend, base = backends["redis"], backends["redis"].store.layout.base("default")
    ids = [work.enqueue().id for _ in range(4)]
    server.client.hset(base + "jobs", ids[0], b"nonsense")
    server.client.hset(base + "state", ids[1], b"nonsense")
    server.client.zadd(base + "ready", {b"no place": 0})
    run = backend.store.run
    assert int(run("putoffnext", "default", [clock.now() + 5, "redis-breakers.work", 100])) == 2
    assert server.client.zcard(base + "ready") == 3
    assert server.client.zcard(base + "later") == 2
