"""A queue's slot moves to another server while jobs are enqueued, fetched and acked.

It is moved key by key, as ``redis-cli --cluster reshard`` does, and everything is tried at each
step. What was answered with yes has to be true when the move is over.
"""

import pytest
from redis.exceptions import ResponseError

from django_jobs.backends.base import Settled
from django_jobs.backends.redis import RedisBackend
from django_jobs.exceptions import EnqueueOutcomeUnknown, StoreUnavailable
from django_jobs.testing.factories import make_outgoing
from tests.integration.worker.pool.conftest import until
from tests.redis_servers import cluster

pytestmark = [pytest.mark.needs("redis"), pytest.mark.django_db(transaction=True)]
OPTIONS = {"PREFIX": "tests", "CLUSTER": True, "TIMEOUT": 2.0}


class Move:
    """The slot of a queue on its way from the server that has it to another."""

    def __init__(self, servers, client, key):
        self.slot = client.keyslot(key)
        port = client.get_node_from_key(key).port
        self.servers = servers
        self.source = next(one for one in servers if one.port == port)
        self.target = next(one for one in servers if one.port != port)
        self.ids = {one: one.client.execute_command("CLUSTER MYID").decode() for one in servers}

    def say(self, server, *words):
        server.client.execute_command("CLUSTER", "SETSLOT", self.slot, *words)

    def begin(self):
        self.say(self.target, "IMPORTING", self.ids[self.source])
        self.say(self.source, "MIGRATING", self.ids[self.target])

    def keys(self):
        return self.source.client.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 1000)

    def carry(self, key):
        self.source.client.execute_command("MIGRATE", "127.0.0.1", self.target.port, key, 0, 5000)

    def end(self):
        for server in (self.target, self.source, *self.servers):
            self.say(server, "NODE", self.ids[self.target])


class Site:
    """Who enqueues and works all the while, and what was promised to them."""

    def __init__(self, url):
        self.backend = RedisBackend("redis", {**OPTIONS, "URL": url})
        self.wanted, self.doubtful, self.held, self.done = set(), set(), {}, set()

    def enqueue(self, **terms):
        message = make_outgoing(backend="redis", **terms)
        try:
            self.backend.enqueue([message])
        except EnqueueOutcomeUnknown:
            self.doubtful.add(message.id)
        except StoreUnavailable as error:
            if not error.undone:
                raise
        else:
            self.wanted.add(message.id)

    def fetch(self):
        try:
            found = self.backend.fetch(["default"], 2, 300.0)
        except StoreUnavailable:
            return None
        for lease in found:
            assert lease.id not in self.held
            assert lease.id not in self.done
            self.held[lease.id] = lease
        return found

    def ack(self):
        for lease in list(self.held.values())[:1]:
            try:
                (told,) = self.backend.ack([lease])
            except StoreUnavailable:
                continue
            assert told is not Settled.LOST
            if told is Settled.SETTLED:
                self.done.add(self.held.pop(lease.id).id)

    def drain(self):
        while self.held or self.fetch():
            self.ack()


def test_nothing_is_lost_or_denied_while_the_slot_of_a_queue_moves():
    with cluster() as servers:
        site = Site(servers[0].url)
        for number in range(12):
            site.enqueue(concurrency_key="disk" if number % 3 == 0 else None)
        site.enqueue(delay=0.001)
        site.fetch()
        client = site.backend.store.connection.client
        move = Move(servers, client, site.backend.store.layout.base("default"))
        move.begin()
        # One at a time, and each of them once the first; so every half of them was there alone.
        left = move.keys()
        assert len(left) >= 5
        while left:
            site.enqueue()
            site.fetch()
            site.ack()
            with pytest.raises(StoreUnavailable):  # an outage, and never an empty queue
                site.backend.stats("default")
            move.carry(left.pop())
            left = left or move.keys()
        move.end()
        until(lambda: site.fetch() is not None)
        site.enqueue()
        site.drain()
        assert site.wanted <= site.done <= site.wanted | site.doubtful
        assert len(site.wanted) >= 14
        stats = site.backend.stats("default")
        assert (stats.ready, stats.running, stats.blocked) == (0, 0, 0)
        with pytest.raises(ResponseError):
            move.source.client.hlen(site.backend.store.layout.base("default") + "jobs")
