"""The docstrings of the backends list nothing that does not happen.

Each row is seen at least once: some tests of the suite show most of them, and the rest is done
here. (That nothing is left out is compared in every test of the suite.)
"""

import unittest
from functools import partial
from unittest.mock import patch

import pytest
from django.db import OperationalError, connection, transaction

from django_jobs.backends.base import AttemptRecord, Failure, OnConflict, ResultRecord
from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.redis import enqueue as redis_enqueue
from django_jobs.backends.redis.connection import RedisClock
from django_jobs.clock import SECOND, ManualClock
from django_jobs.db.clock import StoreClock
from django_jobs.exceptions import DuplicateJob, StoreUnavailable
from django_jobs.models import FailedJob, Job, QueueControl
from django_jobs.testing.conformance import BackendConformance
from django_jobs.testing.factories import make_outgoing
from tests.conformance import redis_hooks, statements, test_database
from tests.conformance.redis_hooks import PREFIX, RedisHooks, emptied
from tests.conformance.test_database import DatabaseHooks
from tests.integration.by_hand import put

pytestmark = pytest.mark.django_db
DAY = 86_400 * SECOND
ON_BOTH = (
    "test_every_way_out_of_a_lease_lets_the_next_one_go_on",
    "test_a_job_cancelled_on_its_turn_passes_it_on",
    "test_a_lease_that_ended_holds_its_place_until_it_is_given_back",
)
ON_THE_DATABASE = (
    *ON_BOTH,
    "test_a_lease_of_a_job_with_keys_says_that_they_were_held_against_others",
    "test_a_job_replaced_on_its_turn_passes_it_on",
    "test_a_push_follows_its_on_conflict",
    "test_jobs_of_a_broken_handler_cost_a_few_fetches_and_run_in_order_later",
    "test_an_account_tells_of_every_attempt_and_of_a_good_end",
    "test_a_job_that_still_waits_for_its_other_key_passes_its_turn_on",
    "test_abandon_keeps_the_record_of_the_last_attempt",
)
ON_REDIS = (
    *ON_BOTH,
    "test_while_one_job_of_a_broken_handler_tries_no_other_does",
    "test_a_job_that_was_replaced_and_comes_again_makes_no_job",
    "test_a_wait_for_nothing_is_over_after_its_timeout",
)
# What does not happen on every database: PostgreSQL acks with one statement of its own, and only
# SQLite stores what makes reaping fail.
VENDOR = connection.vendor
ELSEWHERE = {("ack", "settle" if VENDOR == "postgresql" else "ack", "Job")}
if VENDOR != "sqlite":
    dead = {("reap_expired", "db.dead_letters", model) for model in ("FailedJob", "FailureGroup")}
    ELSEWHERE |= {("reap_expired", "unreadable", "Job"), *dead}


def run(hooks, names, watch):
    """Run some tests of the suite, each in a transaction of its own."""
    case = type("Shown", (hooks, BackendConformance, unittest.TestCase), {"watch": watch})
    for name in names:
        result = unittest.TestResult()
        with transaction.atomic():
            case(name).run(result)
            transaction.set_rollback(True)
        assert result.testsRun == 1
        assert result.wasSuccessful(), result.errors + result.failures


def all_seen(watch, listed):
    statements.compare(watch.seen, listed)
    seen = watch.seen | {(statements.ANY, *row[1:]) for row in watch.seen if len(row) > 2}
    missing = sorted(listed - seen)
    assert not missing, f"the docstring of the backend lists what never happened: {missing}"


def lose_an_answer(backend, queue, error, at):
    """Claim jobs without hearing of it."""
    with patch.object(*at, side_effect=error("the connection broke")), pytest.raises(error):
        backend.fetch([queue], 9, 30.0)


def test_every_row_of_the_database_happens(settings):
    settings.DJANGO_JOBS = {"DEAD_LETTER_TTL": 60}
    clock, watch = ManualClock(), statements.Watch()
    run(DatabaseHooks, ON_THE_DATABASE, watch)
    backend = DatabaseBackend("database", {})
    backend.clock = StoreClock(clock)
    with connection.execute_wrapper(watch.sql):
        limited(backend, clock)
        unreadable(backend, clock)
        with_keys(backend, clock)
        endless(backend, clock)
    all_seen(watch, test_database.LISTED - ELSEWHERE)


def limited(backend, clock):
    QueueControl.objects.create(backend="database", queue="mail", rate_limit="9/s")
    put(backend, 3, "mail")
    put(backend, 1, "mail", delay=60)
    first, second, third = leases = backend.fetch(["mail"], 3, 30.0)
    backend.return_starts(leases)
    assert backend.ask_to_stop(first.id)
    backend.ack([first], {first.id: ResultRecord("succeeded", ttl_seconds=1.0)})
    backend.ack([second])
    backend.nack(third, attempt=AttemptRecord(1, "failed", 1, 2))
    clock.advance(2 * DAY)
    backend.clean_up()


def unreadable(backend, clock):
    odd, sound = put(backend, 2, "odd")
    Job.objects.filter(pk=odd).update(concurrency_key="k", concurrency=0)
    assert [lease.id for lease in backend.fetch(["odd"], 2, 30.0)] == [sound]
    if VENDOR == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("UPDATE django_jobs_job SET id = 'none' WHERE queue = 'odd'")
        clock.advance(60 * SECOND)
        assert backend.reap_expired() == 0
    assert FailedJob.objects.count() == (2 if VENDOR == "sqlite" else 1)
    clock.advance(DAY)
    backend.clean_up()


def with_keys(backend, clock):
    disk = partial(put, backend, concurrency_key="disk")
    disk()
    disk(unique_key="digest")
    disk()
    (lease,) = backend.fetch(["default"], 9, 30.0)
    backend.ack([lease])
    backend.push(
        [make_outgoing(backend="database", unique_key="digest", delay=60)],
        on_conflict=OnConflict.REPLACE,
    )
    disk(2)
    lose_an_answer(backend, "default", OperationalError, (backend._meters, "admitted"))
    backend.return_unanswered()
    put(backend, 1, "new", concurrency_key="tape")
    for tell in (backend.return_unanswered, lambda: backend.fetch(["none"], 1, 30.0)):
        lose_an_answer(backend, "new", OperationalError, (backend._breakers, "admit"))
        tell()
    Job.objects.all().delete()
    disk(2)
    (held,) = backend.fetch(["default"], 2, 30.0)
    Job.objects.filter(pk=held.id).delete()
    backend.clean_up()
    clock.advance(3 * DAY)
    backend.clean_up()


def endless(backend, clock):
    put(backend)
    (lease,) = backend.fetch(["default"], 1, 30.0)
    Job.objects.filter(pk=lease.id).update(lease_expires=None)
    backend.clean_up()


@pytest.mark.needs("redis")
def test_every_row_of_redis_happens(monkeypatch):
    clock, watch = ManualClock(), statements.Watch()
    run(RedisHooks, ON_REDIS, watch)
    backend = RedisBackend("redis", {**RedisHooks.options, "PREFIX": f"{PREFIX}-rows"})
    backend.clock = RedisClock(clock)
    store = backend.store
    store.connection.make = watch.redis(store.connection.make)
    client = store.connection.client
    try:
        counted(backend, clock)
        parked(backend, client)
        taken_back(backend, monkeypatch)
        of_another_type(backend, client)
    finally:
        emptied(client, f"{PREFIX}-rows")
    all_seen(watch, redis_hooks.LISTED)


def counted(backend, clock):
    QueueControl.objects.create(backend="redis", queue="mail", rate_limit="9/s")
    on_redis(backend, 2, "mail")
    first, second = leases = backend.fetch(["mail"], 2, 30.0)
    backend.return_starts(leases)
    assert backend.ask_to_stop(first.id)
    backend.ack([first], {first.id: ResultRecord("succeeded", finished_at=clock.now() - 1)})
    assert list(backend.purge_results(0)) == [(1, 0)]
    backend.nack(second)
    assert backend.forget_rate("mail")
    assert not backend.forget_breaker("queue", "mail")
    for tell in (backend.return_unanswered, lambda: backend.fetch(["none"], 1, 30.0)):
        lose_an_answer(backend, "mail", StoreUnavailable, (backend._claims.breakers, "admit"))
        tell()


def parked(backend, client):
    on_redis(backend, 1, "dead")
    (lease,) = backend.fetch(["dead"], 1, 30.0)
    with patch.object(backend._relay, "carry_one"):
        backend.abandon(lease, Failure(reason="exhausted"))
    for queue in ("first", "waits"):
        on_redis(backend, 1, queue, concurrency_key="k")
    (held,) = backend.fetch(["first"], 1, 30.0)
    assert backend.fetch(["waits"], 1, 30.0) == []
    client.zrem(backend.store.layout.base("first") + "leased", held.id)
    backend.clean_up()


def taken_back(backend, monkeypatch):
    monkeypatch.setattr(redis_enqueue, "AT_ONCE", 1)
    outgoing = partial(make_outgoing, backend="redis")
    for enqueue in (backend.enqueue, backend.push):
        enqueue([outgoing(unique_key="taken")])
        with pytest.raises(DuplicateJob):
            enqueue([outgoing(), outgoing(unique_key="taken")], on_conflict=OnConflict.RAISE)


def of_another_type(backend, client):
    known = backend.store.layout.known_queues
    client.delete(known)
    assert "first" in backend.queues()  # stored again, as it gave a job
    client.delete(known)
    client.set(known, "none of ours")
    backend.queues()
    client.set(backend.store.layout.base("quiet") + "wake", "none of ours")
    assert not backend.wait(["quiet"], 0.05)


def on_redis(backend, count, queue, **terms):
    return put(backend, count, queue, backend="redis", **terms)
