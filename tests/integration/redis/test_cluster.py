"""A real cluster of three servers: the contract, the slots, and a fail-over."""

import signal
import threading
from collections import Counter
from itertools import islice

import pytest
from django.test import TestCase, override_settings

from django_jobs import enqueue_many
from django_jobs.backends.base import Evidence, HousekeepingDue, ResultRecord, Settled
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.exceptions import EnqueueOutcomeUnknown, StoreUnavailable
from django_jobs.testing.conformance import BackendConformance
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker.build import build_cycle
from django_jobs.worker.pool.get_thread import Fetcher
from django_jobs.worker.queues import InTurn, Strict
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

    def test_a_queue_without_a_worker_holds_up_no_other(self):
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


def _server_of(backend, servers, key):
    port = backend.store.connection.client.get_node_from_key(key).port
    return next(one for one in servers if one.port == port)


def _queue_on(backend, servers, server):
    return next(_queues_on(backend, servers, server))


def _queues_on(backend, servers, server):
    names = (f"queue-{number}" for number in range(100))
    base = backend.store.layout.base
    return (name for name in names if _server_of(backend, servers, base(name)) is server)


@pytest.fixture
def apart():
    """Three servers of which each serves its slots though others are away, and a backend."""
    with cluster() as servers:
        for server in servers:
            server.client.config_set("cluster-require-full-coverage", "no")
        yield servers, RedisBackend("redis", {**OPTIONS, "URL": servers[0].url})


def _put_into(backend, queue, count):
    messages = [make_outgoing(queue, backend="redis") for _ in range(count)]
    return [one.id for one in backend.enqueue(messages)]


@pytest.mark.django_db
def test_jobs_run_while_the_server_of_what_all_queues_share_is_away(apart, monkeypatch):
    servers, backend = apart
    events = []
    monkeypatch.setattr("django_jobs.backends.redis.store.emit", events.append)
    shared = _server_of(backend, servers, backend.store.layout.known_queues)
    queue = _queue_on(backend, servers, next(one for one in servers if one is not shared))
    ids = _put_into(backend, queue, 4)
    assert backend.queues() == [queue]
    shared.kill()
    asked = [backend.fetch([queue], 1, 30.0) for _ in range(2)]
    done, failed = [lease for (lease,) in asked]
    backend.count_evidence([(failed, Evidence.FAILED), (done, Evidence.WORKED)])
    assert backend.renew([done, failed], 30.0) == [Settled.SETTLED] * 2
    assert backend.nack(failed, 60.0) is Settled.SETTLED
    assert backend.ack([done]) == [Settled.SETTLED]
    assert backend.queues_due(0.0) == [queue]
    assert backend.wait(None, 0.0)
    assert backend.housekeeping_due() == HousekeepingDue(reap=False, clean_up=False)
    assert (backend.reap_expired(), backend.clean_up()) == (0, 0)
    assert [one.id for one in backend.fetch([queue], 9, 30.0)] == ids[2:]
    assert {event.queue for event in events} == {"*"}


@pytest.mark.django_db
def test_a_queue_whose_server_is_away_keeps_no_worker_from_the_others(apart):
    servers, backend = apart
    shared = _server_of(backend, servers, backend.store.layout.known_queues)
    lost, sound = (_queue_on(backend, servers, one) for one in servers if one is not shared)
    _put_into(backend, lost, 2)
    ids = _put_into(backend, sound, 2)
    _server_of(backend, servers, backend.store.layout.base(lost)).kill()
    (lease,) = backend.fetch([lost, sound], 1, 30.0)
    assert (lease.id, backend.ack([lease])) == (ids[0], [Settled.SETTLED])
    assert backend.queues_due(0.0) == [sound]
    assert backend.wait([lost, sound], 0.0)
    assert not backend.housekeeping_due().reap
    assert (backend.reap_expired(), backend.clean_up()) == (0, 0)
    assert [one.id for one in backend.fetch([lost, sound], 9, 30.0)] == ids[1:]
    for ask in (backend.fetch, lambda *_: backend.wait([lost], 0.0)):
        with pytest.raises(StoreUnavailable):  # an outage is never an empty queue
            ask([lost], 1, 30.0)


@pytest.fixture
def frozen(apart, monkeypatch):
    """Ten queues whose server takes what it is sent and does not answer, and one beside them.

    With them the scripts that were not answered.
    """
    servers, _ = apart
    backend = RedisBackend("redis", {**OPTIONS, "TIMEOUT": 0.5, "URL": servers[0].url})
    shared = _server_of(backend, servers, backend.store.layout.known_queues)
    lost, sound = (one for one in servers if one is not shared)
    queues = [*islice(_queues_on(backend, servers, lost), 10), _queue_on(backend, servers, sound)]
    for queue in queues:
        _put_into(backend, queue, 3)
    failures, run = [], backend.store.connection.run

    def noted(script, *rest):
        try:
            return run(script, *rest)
        except StoreUnavailable:
            failures.append(script)
            raise

    monkeypatch.setattr(backend.store.connection, "run", noted)
    lost.process.send_signal(signal.SIGSTOP)
    yield backend, queues, failures
    lost.process.send_signal(signal.SIGCONT)


@pytest.mark.django_db
def test_a_server_that_does_not_answer_is_waited_for_once_whatever_queues_it_has(frozen):
    backend, queues, failures = frozen
    for _ in range(3):
        (lease,) = backend.fetch(queues, 1, 30.0)
        assert lease.queue == queues[-1]
    assert backend.queues_due(0.0) == []
    assert not backend.housekeeping_due().reap
    assert (backend.reap_expired(), backend.clean_up()) == (0, 0)
    assert len(failures) == 1
    with pytest.raises(StoreUnavailable):  # an outage is never an empty queue
        backend.fetch(queues[:-1], 1, 30.0)


@pytest.mark.django_db
@pytest.mark.parametrize("names_queues", [True, False])
def test_a_worker_does_not_take_the_queues_of_a_server_that_is_away_for_empty(frozen, names_queues):
    backend, queues, _ = frozen
    settings = get_settings()
    order = Strict(queues) if names_queues else InTurn(backend, settings)
    fetcher = Fetcher(backend, settings, order, 1.0, threading.Condition())
    fetcher.request(0, 9)
    assert until(lambda: looked(fetcher)) == [queues[-1]] * 3
    for _ in range(3):
        assert looked(fetcher) == []
        assert not fetcher.empty


def looked(fetcher):
    found = fetcher.look()
    return [lease.queue for lease in found.leases] if found else []


@pytest.mark.django_db
def test_one_process_that_does_everything_goes_past_a_server_that_is_away(frozen):
    backend, queues, _ = frozen
    cycle = build_cycle(backend, get_settings())
    assert cycle.once(queues).queue == queues[-1]
    assert cycle.once(queues).queue == queues[-1]


@pytest.mark.django_db
def test_a_breaker_counts_on_while_the_server_of_its_probe_is_away(apart, monkeypatch):
    servers, backend = apart
    events = []
    monkeypatch.setattr("django_jobs.backends.redis.store.emit", events.append)
    shared = _server_of(backend, servers, backend.store.layout.known_queues)
    lost, sound = (_queue_on(backend, servers, one) for one in servers if one is not shared)
    _put_into(backend, lost, 1)
    _put_into(backend, sound, 2)
    handler = make_outgoing(sound, backend="redis").terms.job
    breaker = {"THRESHOLD": 1, "COOLDOWN": 0.05, "HANDLERS": {handler: {}}}
    with override_settings(DJANGO_JOBS={"CIRCUIT_BREAKER": breaker}):
        (failed,) = backend.fetch([sound], 1, 30.0)
        backend.count_evidence([(failed, Evidence.FAILED)])
        (probe,) = until(lambda: backend.fetch([lost], 1, 30.0))
        assert probe.probe
        _server_of(backend, servers, backend.store.layout.base(lost)).kill()
        assert all(lease.probe for lease in backend.fetch([sound], 1, 30.0))
    assert not events


@pytest.mark.django_db
def test_jobs_are_enqueued_to_known_queues_while_the_server_of_their_names_is_away(
    apart, monkeypatch
):
    monkeypatch.setattr("django_jobs.backends.redis.store.ANNOUNCED_SECONDS", 0.0)
    servers, backend = apart
    shared = _server_of(backend, servers, backend.store.layout.known_queues)
    sound = next(one for one in servers if one is not shared)
    known, new = islice(_queues_on(backend, servers, sound), 2)
    ids = _put_into(backend, known, 1)
    shared.kill()
    ids += _put_into(backend, known, 1)
    assert [lease.id for lease in backend.fetch([known], 9, 30.0)] == ids
    with pytest.raises(StoreUnavailable):  # no worker might find it
        _put_into(backend, new, 1)
    assert backend.fetch([new], 9, 30.0) == []


@pytest.mark.django_db
def test_names_that_cannot_be_stored_are_not_tried_again_at_every_look(apart, monkeypatch):
    servers, backend = apart
    shared = _server_of(backend, servers, backend.store.layout.known_queues)
    queue = _queue_on(backend, servers, next(one for one in servers if one is not shared))
    _put_into(backend, queue, 1)
    assert len(backend.fetch([queue], 1, 30.0)) == 1  # and no list of names was asked for yet
    failures, ask = [], backend.store.connection.ask

    def noted(work):
        try:
            return ask(work)
        except StoreUnavailable:
            failures.append(work)
            raise

    monkeypatch.setattr(backend.store.connection, "ask", noted)
    shared.kill()
    for _ in range(5):
        assert backend.store.queues() == [queue]
    assert len(failures) == 1


def _is_drained(backend):
    try:
        return backend.queues() == []
    except StoreUnavailable:
        return False


def _put(backend):
    message = make_outgoing(backend="redis")
    backend.enqueue([message])
    return message.id
