"""A queue per tenant in Redis: only those in which there is something to do are asked about."""

from collections import Counter

import pytest

from django_jobs.backends.base import ResultRecord, Settled
from django_jobs.backends.redis.connection import RedisClock
from django_jobs.clock import ManualClock
from django_jobs.conf import get_settings
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker.queues import InTurn
from tests.integration.worker.pool.conftest import until

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]


def put(backend, queue, **terms):
    backend.enqueue([make_outgoing(queue, backend="redis", **terms)])


@pytest.fixture
def scripts(backend, monkeypatch):
    """The scripts that were run, and on how many queues each."""
    told, run_on = [], backend.store.run_on

    def noted(name, queues, args):
        told.append((name, len(queues)))
        return run_on(name, queues, args)

    monkeypatch.setattr(backend.store, "run_on", noted)
    return told


def test_a_fetch_is_told_only_of_queues_in_which_something_is_due(backend, scripts):
    for n in range(30):
        put(backend, f"tenant-{n}", delay=86_400.0)
    put(backend, "zz")
    assert backend.queues_due(0.0) == ["zz"]
    order = InTurn(backend, get_settings())
    order.next()
    scripts.clear()
    assert len(backend.fetch(order.next(), 1, 30.0)) == 1
    assert scripts == [("fetch", 2)]


def test_only_queues_with_something_to_clean_up_are_cleaned_up(backend, scripts):
    for n in range(30):
        put(backend, f"tenant-{n}", delay=86_400.0)
    for queue in ("keyed", "other"):
        put(backend, queue, concurrency_key="k")
    assert len(backend.fetch(["keyed", "other"], 1, 30.0)) == 1
    assert backend.fetch(["keyed", "other"], 1, 30.0) == []
    scripts.clear()
    backend.clean_up()
    assert scripts == [("cleanupqueues", 32), ("cleanup", 1)]


def test_many_queues_that_wait_for_one_key_ask_once_who_holds_it(backend, scripts):
    for n in range(30):
        put(backend, f"tenant-{n:02}", concurrency_key="k")
    queues = [f"tenant-{n:02}" for n in range(30)]
    assert len(backend.fetch(queues, 1, 30.0)) == 1
    assert backend.fetch(queues, 1, 30.0) == []
    scripts.clear()
    backend.store.connection.client.config_resetstat()
    backend.clean_up()
    counts = Counter(name for name, _ in scripts)
    assert counts == {"cleanupqueues": 1, "cleanup": 29}  # and no script looks in all of them
    assert backend.store.connection.client.info("commandstats")["cmdstat_zmscore"]["calls"] == 29


def test_a_place_whose_holder_is_leased_nowhere_is_free_again(backend, scripts):
    put(backend, "first", concurrency_key="k")
    put(backend, "waits", concurrency_key="k")
    (held,) = backend.fetch(["first"], 1, 30.0)
    assert backend.fetch(["waits"], 1, 30.0) == []
    client, base = backend.store.connection.client, backend.store.layout.base("first")
    client.zrem(base + "leased", held.id)
    scripts.clear()
    backend.clean_up()
    assert ("unheld", 2) in scripts
    assert len(backend.fetch(["waits"], 1, 30.0)) == 1


def test_a_look_for_lost_jobs_asks_of_many_queues_at_once(backend, scripts):
    for n in range(30):
        put(backend, f"tenant-{n:02}")
    (lost,) = backend.fetch(["tenant-03"], 1, 0.01)
    until(lambda: backend.housekeeping_due().reap)
    scripts.clear()
    assert backend.reap_expired() == 1
    assert scripts == [("lostqueues", 30), ("reap", 1)]
    assert backend.find(lost.id).message.header.deliveries == 1


def test_no_script_is_asked_about_all_of_very_many_queues(backend, scripts, monkeypatch):
    monkeypatch.setattr("django_jobs.backends.redis.store.QUEUES_AT_ONCE", 10)
    for n in range(25):
        put(backend, f"tenant-{n}")
    scripts.clear()
    assert len(backend.queues_due(0.0)) == 25
    assert not backend.housekeeping_due().clean_up
    backend.clean_up()
    backend.reap_expired()
    assert {count for _, count in scripts} == {10, 5}


def test_a_key_that_is_held_in_a_queue_that_is_new_stays_held(backend, monkeypatch):
    put(backend, "first", concurrency_key="k")
    put(backend, "waits", concurrency_key="k")
    (held,) = backend.fetch(["first"], 1, 30.0)
    assert backend.fetch(["waits"], 1, 30.0) == []
    run_on = backend.store.run_on

    def changed(name, queues, args):
        if name == "cleanup":
            monkeypatch.setattr(backend.store, "run_on", run_on)
            put(backend, "new", concurrency_key="k")
            backend.ack([held])
            assert len(backend.fetch(["new"], 1, 30.0)) == 1
            assert backend.fetch(["waits"], 1, 30.0) == []
        return run_on(name, queues, args)

    monkeypatch.setattr(backend.store, "run_on", changed)
    backend.clean_up()
    assert backend.fetch(["waits"], 1, 30.0) == []


# ---------------------------------------------------------------- names that nobody uses


def names(backend):
    stored = backend.store.connection.client.smembers(backend.store.layout.known_queues)
    return {name.decode() for name in stored}


@pytest.fixture
def manual(backend):
    """The store's clock, moved by the test."""
    manual = ManualClock()
    backend.clock = RedisClock(manual)
    return manual


def test_the_name_of_a_queue_that_was_empty_for_a_day_is_forgotten(backend, manual):
    put(backend, "once")
    put(backend, "stays")
    (lease,) = backend.fetch(["once"], 1, 200_000.0)
    for _ in range(2):
        backend.clean_up()
        manual.advance(100_000.0)
    assert names(backend) == {"once", "stays"}
    assert backend.ack([lease]) == [Settled.SETTLED]
    backend.clean_up()
    manual.advance(86_399.0)
    backend.clean_up()
    assert names(backend) == {"once", "stays"}
    manual.advance(1.0)
    backend.clean_up()
    assert names(backend) == {"stays"}
    assert backend.store.queues() == ["stays"]
    put(backend, "once")
    assert names(backend) == {"once", "stays"}
    assert len(backend.fetch(["once"], 1, 30.0)) == 1


def test_a_queue_that_is_used_now_and_then_keeps_its_name(backend, manual):
    for _ in range(4):
        put(backend, "once")
        backend.ack(backend.fetch(["once"], 1, 30.0))
        backend.clean_up()
        assert names(backend) == {"once"}
        manual.advance(80_000.0)


@pytest.mark.parametrize("left", ["a result", "a dead letter", "a job for tomorrow"])
def test_a_queue_of_which_something_is_kept_keeps_its_name(backend, manual, left):
    put(backend, "kept", delay=None if left != "a job for tomorrow" else 864_000.0)
    for lease in backend.fetch(["kept"], 1, 30.0):
        if left == "a result":
            backend.ack([lease], {lease.id: ResultRecord("succeeded", ttl_seconds=864_000.0)})
        else:
            told = [lease.id, lease.token, "nothing", "", "{}", 0]
            assert backend.store.run("abandon", "kept", told)
            backend._relay._rests_until = float("inf")  # as while the database is away
    for _ in range(2):
        backend.clean_up()
        manual.advance(86_400.0 - 1)
    assert names(backend) == {"kept"}
    assert not backend.store.connection.client.exists(backend.store.layout.base("kept") + "unused")
