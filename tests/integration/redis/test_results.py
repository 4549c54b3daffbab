"""Results in Redis: how long they are kept, and what deletes them sooner."""

import io
import json

import pytest
from django.core.management import call_command

from django_jobs import enqueue_many, job
from django_jobs.backends.base import ResultRecord, Settled
from django_jobs.backends.redis.connection import RedisClock
from django_jobs.backends.registry import backends
from django_jobs.clock import ManualClock
from django_jobs.models import OperatorEvent
from django_jobs.worker import process_once
from testproject.shop import jobs as shop
from tests.integration.worker.pool.conftest import until

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]

DONE = ResultRecord("succeeded", finished_at=1_700_000_000_000_000)


@job(key="results.nothing")
def nothing():
    pass


@pytest.fixture(autouse=True)
def site(jobs):
    pass


def test_a_result_is_gone_when_its_time_is_over():
    backend, clock = backends["redis"], ManualClock()
    backend.clock = RedisClock(clock)
    handle = shop.flaky.using(retry="none", result_ttl=60.0).enqueue()
    until(lambda: process_once().status == "acked")
    assert handle.status == "succeeded"
    clock.advance(61)
    assert backend.result(handle.id) is None
    assert backend.housekeeping_due().clean_up
    assert backend.clean_up() == 1
    assert not backend.housekeeping_due().clean_up
    assert not backend.store.connection.client.exists(*kept_keys(backend))


def test_who_adds_results_drops_those_whose_time_is_over():
    handles = [nothing.using(result_ttl=0.2).enqueue() for _ in range(2)]
    for _ in handles:
        until(lambda: process_once().status == "acked")
    until(lambda: [one.status for one in handles] == ["unknown"] * 2)
    last = nothing.using(result_ttl=60.0).enqueue()
    until(lambda: process_once().status == "acked")
    backend = backends["redis"]
    kept, _ = kept_keys(backend)
    assert backend.store.connection.client.hkeys(kept) == [last.id.encode()]


def test_a_purge_deletes_old_results_and_their_attempts_from_redis():
    old = shop.flaky.using(retry=[0]).enqueue()
    until(lambda: process_once().status == "acked")
    cancelled, waiting = shop.doomed.enqueue(), shop.doomed.enqueue()
    backend = backends["redis"]
    assert backend.cancel(cancelled.id)
    attempts = backend.store.layout.base("default") + "att:" + old.id
    assert backend.store.connection.client.exists(attempts)
    assert purged("--state", "all", "--older-than", "1d") == {"results": 0, "attempts": 0}
    assert purged("--state", "succeeded", "--older-than", "0d", "--queue", "mail")["results"] == 0
    counted = purged("--state", "succeeded", "--older-than", "0d", "--dry-run")
    assert counted == {"results": 2, "attempts": 2}
    assert old.status == "succeeded"
    assert purged("--state", "succeeded", "--older-than", "0d") == counted
    assert [one.status for one in (old, cancelled, waiting)] == ["unknown", "unknown", "ready"]
    assert not backend.store.connection.client.exists(attempts, *kept_keys(backend))
    assert OperatorEvent.objects.get(action="purge").detail["results"] == 2


def test_a_purge_of_more_results_than_a_step_reads_deletes_them_all():
    for _ in range(3):
        enqueue_many([nothing.prepare() for _ in range(200)])
        leases = backends["redis"].fetch(["default"], 200, 30.0)
        backends["redis"].ack(leases, dict.fromkeys([one.id for one in leases], DONE))
    assert purged("--state", "succeeded", "--older-than", "0d")["results"] == 600
    assert not backends["redis"].store.connection.client.exists(*kept_keys(backends["redis"]))


def test_results_of_any_size_are_kept_at_once():
    enqueue_many([nothing.prepare() for _ in range(30)])
    leases = backends["redis"].fetch(["default"], 30, 30.0)
    large = DONE._replace(value_json=f'"{"x" * 100_000}"')
    answers = backends["redis"].ack(leases, dict.fromkeys([one.id for one in leases], large))
    assert answers == [Settled.SETTLED] * 30
    kept = [backends["redis"].result(one.id).value_json for one in leases]
    assert kept == [large.value_json] * 30


def test_a_purge_of_one_database_leaves_brokers_alone():
    handle = nothing.enqueue()
    until(lambda: process_once().status == "acked")
    purged("--state", "succeeded", "--older-than", "0d", "--database", "default")
    assert handle.status == "succeeded"


def test_jobs_that_ended_are_listed():
    done = nothing.enqueue()
    until(lambda: process_once().status == "acked")
    cancelled = nothing.enqueue()
    assert backends["redis"].cancel(cancelled.id)
    said = io.StringIO()
    call_command("jobs_list", "--state", "succeeded", "--json", stdout=said)
    (listed,) = json.loads(said.getvalue())["jobs"]
    assert (listed["id"], listed["handler"], listed["backend"]) == (done.id, nothing.key, "redis")
    assert listed["ended"]
    said = io.StringIO()
    call_command("jobs_list", "--state", "cancelled", stdout=said)
    assert cancelled.id in said.getvalue()


def kept_keys(backend):
    base = backend.store.layout.base("default")
    return base + "res", base + "kept"


def purged(*options):
    """What jobs_purge says that it has deleted."""
    said = io.StringIO()
    call_command("jobs_purge", *options, "--force", "--json", stdout=said)
    told = json.loads(said.getvalue())
    return {name: told[name] for name in ("results", "attempts")}
