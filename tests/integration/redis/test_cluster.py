"""A real cluster of three servers: the contract, the slots, and a fail-over."""

import signal
from collections import Counter

import pytest
from django.test import TestCase, override_settings

from django_jobs import enqueue_many
from django_jobs.backends.base import ResultRecord, Settled
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.registry import backends
from django_jobs.exceptions import EnqueueOutcomeUnknown, StoreUnavailable
from django_jobs.testing.conformance import BackendConformance
from django_jobs.testing.factories import make_outgoing
from tests.conformance.redis_hooks import RedisHooks
from tests.integration.redis.conftest import jobs_in
from tests.integration.worker.pool.conftest import until
from tests.integration.worker.pool.gang import jobs as gang
from tests.redis_servers import cluster

pytestmark = pytest.mark.needs("redis")
OPTIONS = {"PREFIX": "tests", "CLUSTER": True, "TIMEOUT": 2.0}


@pytest.fixture(scope="class")
def three(request):
    with cluster() as servers:
        request.cls.options = {**OPTIONS, "URL": servers[0].url}
        yield servers


@pytest.mark.usefixtures("three")
class TestRedisBackendInACluster(RedisHooks, BackendConformance, TestCase):
    """Keys count within a queue there: so say four tests below in place of the suite's."""

    def test_a_key_is_held_across_queues(self):
        first = self.put("elsewhere", unique_key="report")
        second = self.put(unique_key="report")
        assert first != second
        assert self.put("elsewhere", unique_key="report") == first

    def test_a_key_counts_over_all_queues(self):
        self.put(concurrency_key="disk")
        self.put(concurrency_key="disk")
        self.put("other", concurrency_key="disk")
        assert len(self.fetched_ids()) == 1
        assert len(self.fetched_ids(9, "other")) == 1

    def test_a_lease_that_ended_gives_its_place_back(self):
        ids = [self.put(concurrency_key="disk") for _ in range(2)]
        lost = self.take()
        self.assert_nothing_due()
        self.lose(lost)
        (ran,) = self.fetched_ids()
        assert ran in ids
        self.assert_nothing_due()

    def test_a_queue_that_nobody_serves_holds_up_no_other(self):
        self.put("unserved", concurrency_key="disk")
        ids = [self.put(concurrency_key="disk") for _ in range(2)]
        first = self.take()
        self.assert_nothing_due()
        self.backend.ack([first])
        assert [first.id, *self.fetched_ids()] == ids
        assert len(self.fetched_ids(9, "unserved")) == 1

    def test_the_queues_lie_on_several_servers_and_each_on_one(self):
        names = [f"queue-{number}" for number in range(30)]
        self.backend.enqueue([self.outgoing(name) for name in names])
        client = self.client
        nodes = {}
        for name in names:
            base = self.backend.store.layout.base(name)
            slots = {
                client.keyslot(base + word) for word in ("jobs", "ready", "res", "att:1", "w:c:2")
            }
            assert len(slots) == 1
            nodes[name] = client.get_node_from_key(base).name
        assert len(set(nodes.values())) == 3
        assert self.backend.queues() == sorted(names)
        assert all(len(self.fetched_ids(9, name)) == 1 for name in names)

    def test_results_on_all_servers_are_listed_and_purged(self):
        names = [f"queue-{number}" for number in range(30)]
        self.backend.enqueue([self.outgoing(name) for name in names])
        for name in names:
            (lease,) = self.fetch(1, name)
            self.backend.ack([lease], {lease.id: ResultRecord("succeeded", finished_at=self.now())})
        self.advance(1)
        assert {account.queue for account in self.backend.latest(None)} == set(names)
        assert sum(results for results, _ in self.backend.purge_results(0)) == len(names)
        assert self.backend.latest(None) == []


@pytest.mark.django_db(transaction=True)
def test_a_server_dies_and_its_replica_goes_on_with_the_jobs():
    with cluster(replicas=1) as servers:
        backend = RedisBackend("redis", {**OPTIONS, "URL": servers[0].url})
        ids = [_put(backend) for _ in range(20)]
        (lease,) = backend.fetch(["default"], 1, 60.0)
        client = backend.store.connection.client
        master = client.get_node_from_key(backend.store.layout.base("default"))
        victim = next(server for server in servers if server.port == master.port)
        victim.until(lambda client: client.info("replication")["connected_slaves"] == 1)
        victim.until(lambda client: client.wait(1, 5000) == 1)
        victim.kill()
        asked = []

        def goes_on():
            try:
                asked.append(backend.ack([lease])[0])
            except (StoreUnavailable, EnqueueOutcomeUnknown):
                return False
            return asked[-1] is not Settled.UNKNOWN

        until(goes_on, patience=60.0)
        assert asked[-1] is Settled.SETTLED
        ids.append(_put(backend))
        assert [one.id for one in backend.fetch(["default"], 50, 60.0)] == ids[1:]


@pytest.mark.django_db
def test_a_settle_that_was_not_answered_is_sent_once():
    """Whatever redis-py would like to try again: the first may have counted."""
    with cluster() as servers:
        backend = RedisBackend("redis", {**OPTIONS, "URL": servers[0].url, "TIMEOUT": 0.5})
        _put(backend)
        (lease,) = backend.fetch(["default"], 1, 60.0)
        client = backend.store.connection.client
        port = client.get_node_from_key(backend.store.layout.base("default")).port
        server = next(one for one in servers if one.port == port)
        # It answers a second and a third try only; and what it has not begun when its sender
        # hangs up, it drops.
        server.client.execute_command("CLIENT", "PAUSE", "1600", "WRITE")
        assert backend.ack([lease]) == [Settled.UNKNOWN]
        server.client.execute_command("CLIENT", "UNPAUSE")
        assert backend.ack([lease]) == [Settled.SETTLED]


@pytest.mark.django_db(transaction=True)
def test_a_worker_goes_on_where_a_server_of_the_cluster_dies_in_the_middle(start, diary):
    with cluster(replicas=1) as servers:
        options = {"CLUSTER": True, "TIMEOUT": 2.0}
        jobs = {**jobs_in(servers[0], **options), "LEASE_SECONDS": 6, "POLL_INTERVAL": 0.2}
        with override_settings(DJANGO_JOBS=jobs):
            enqueue_many([gang.nap.prepare(str(diary), 0.02, f"n{n}") for n in range(200)])
            backend = backends["redis"]
            client = backend.store.connection.client
            port = client.get_node_from_key(backend.store.layout.base("default")).port
            victim = next(one for one in servers if one.port == port)
            victim.until(lambda client: client.info("replication")["connected_slaves"] == 1)
            victim.until(lambda client: client.wait(1, 5000) == 1)
            pool = start("-v0", **jobs)
            until(lambda: len(diary.words) >= 60)
            victim.kill()
            until(lambda: _is_drained(backend), patience=90.0)
            pool.signal(signal.SIGTERM)
            assert pool.ended() == 0, pool.said
    ended = Counter(word for word in diary.words if word.endswith("-ends"))
    assert set(ended) == {f"n{n}-ends" for n in range(200)}


def _is_drained(backend):
    try:
        return backend.queues() == []
    except StoreUnavailable:
        return False


def _put(backend):
    message = make_outgoing(backend="redis")
    backend.enqueue([message])
    return message.id
