"""Looking for work beside a supervisor that changes its requests."""

import select
import threading

import pytest

from django_jobs.backends.base import LimitsRates, LooksAhead
from django_jobs.backends.memory import MemoryBackend
from django_jobs.backends.values import CLAIM_BYTES
from django_jobs.clock import ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker.pool.get_thread import Fetcher
from django_jobs.worker.pool.keep_thread import AHEAD_BYTES
from django_jobs.worker.pool.pace import Pace
from django_jobs.worker.pool.shared_memory import Places
from django_jobs.worker.pool.store_threads import StoreThreads
from django_jobs.worker.pool.thread_messages import Idle, WakePipe
from django_jobs.worker.queues import Strict
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Asker, Outage


class ChangesItsMind(MemoryBackend, LooksAhead):
    """While it is asked whether there may be work, the request for it is withdrawn."""

    def __init__(self):
        super().__init__("default", {"CLOCK": ManualClock()})
        self.limits, self.fetcher = [], None

    def fetch(self, queues, limit, lease_seconds):
        self.limits.append(limit)
        return super().fetch(queues, limit, lease_seconds)

    def wait(self, queues, timeout):
        self.fetcher.request(0, 0)
        return True


@pytest.fixture
def backend():
    backend = ChangesItsMind()
    backend.enqueue([make_outgoing()])
    queues = Strict(["default"])
    backend.fetcher = Fetcher(backend, JobsSettings(), queues, 1.0, threading.Condition())
    return backend


def test_what_is_wished_for_no_more_is_not_fetched(backend):
    backend.fetcher.request(0, 5)
    assert backend.fetcher.begin()
    assert len(backend.fetcher.look().leases) == 1
    assert backend.fetcher.look() is None
    assert backend.limits == [5]


class PassesOverMany(MemoryBackend):
    """Three fetches end early, before one finds something."""

    early = 3

    @property
    def fetch_ended_early(self):
        return self.early > 0

    def fetch(self, queues, limit, lease_seconds):
        self.early -= 1
        return [] if self.early else super().fetch(queues, limit, lease_seconds)


def test_it_looks_again_at_once_while_fetches_end_early():
    backend = PassesOverMany("default", {})
    backend.enqueue([make_outgoing()])
    fetcher = Fetcher(backend, JobsSettings(), Strict(["default"]), 1.0, threading.Condition())
    fetcher.request(0, 1)
    for _ in range(2):
        assert fetcher.look() is None
        assert not fetcher.empty
        assert fetcher.seconds_left() <= 0
    assert len(fetcher.look().leases) == 1


class TakesItsTime(MemoryBackend):
    """Finds nothing, once it may."""

    def __init__(self):
        super().__init__("default", {})
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def fetch(self, queues, limit, lease_seconds):
        self.asked.set()
        self.may_answer.wait(20.0)
        return []


LARGE = {"args": ["x" * 250_000], "kwargs": {}}


@pytest.fixture
def filled():
    """Threads for a store in which many large jobs come behind small ones."""
    backend, wake, settings = MemoryBackend("default", {}), WakePipe(), JobsSettings()
    backend.enqueue([make_outgoing() for _ in range(50)])
    backend.enqueue([make_outgoing(payload=LARGE) for _ in range(150)])
    asker = Asker(Settler(backend, settings), Outage("default"))
    threads = StoreThreads(
        backend,
        settings,
        asker,
        Strict(["default"]),
        places=Places(2, 1),
        poll_interval=60.0,
        wake=wake,
        relay=None,
    )
    threads.start()
    yield threads, wake
    threads.end(patience=5.0)
    wake.close()


def leases_of(threads, wake, received):
    """All leases that come until no claim is under way or to be begun."""
    fetcher = threads._get.fetcher
    while not threads.fetching and fetcher.seconds_left() <= 0:
        select.select([wake], [], [], 0.01)
    while threads.fetching:
        select.select([wake], [], [], 0.01)
    while threads.news:
        received += threads.news.popleft().leases
    return received


def test_no_more_bytes_are_fetched_ahead_than_a_worker_should_hold(filled):
    threads, wake = filled
    received = []
    threads.request_leases(0, 1024)  # as of a worker that has only seen small ones
    while not threads.has_plenty:
        leases_of(threads, wake, received)
    leases_of(threads, wake, received)
    bodies = [len(lease.message.body) for lease in received]
    assert AHEAD_BYTES <= sum(bodies) < AHEAD_BYTES + CLAIM_BYTES + max(bodies)
    held = len(received)
    threads.request_leases(held - 1, 1024)  # of who has not heard of all of them
    assert leases_of(threads, wake, received)[held:] == []
    threads.request_leases(held, 1)  # and of who has, and needs one more
    while len(received) == held:
        leases_of(threads, wake, received)
    assert len(received) == held + 1
    for lease in received:
        threads.settled_elsewhere(lease, "acked", 0.0)
    assert not threads.has_plenty


def test_the_supervisor_is_woken_when_a_look_has_found_nothing():
    backend, wake, settings = TakesItsTime(), WakePipe(), JobsSettings()
    asker = Asker(Settler(backend, settings), Outage("default"))
    places = Places(1, 1)
    threads = StoreThreads(
        backend,
        settings,
        asker,
        Strict(["default"]),
        places=places,
        poll_interval=60.0,
        wake=wake,
        relay=None,
    )
    threads.start()
    try:
        threads.request_leases(0, 1)
        assert backend.asked.wait(20.0)
        wake.drain()
        assert threads.fetching
        backend.may_answer.set()
        assert select.select([wake], [], [], 5.0)[0]
        assert not threads.fetching
    finally:
        backend.may_answer.set()
        threads.end(patience=5.0)
        wake.close()


class Limited(MemoryBackend, LimitsRates, LooksAhead):
    """The queue named so has a rate limit."""

    def __init__(self, *queues):
        super().__init__("default", {"CLOCK": ManualClock()})
        self.enqueue([make_outgoing(queue=queue) for queue in queues])
        self.tried = []

    def rate_limited(self, queues):
        return {"limited"} & set(queues)

    def fetch(self, queues, limit, lease_seconds):
        self.tried.append((*queues, limit))
        return super().fetch(queues, limit, lease_seconds)

    def wait(self, queues, timeout):
        return any(self.stats(queue).ready for queue in queues)

    def fetcher(self, *queues):
        return Fetcher(self, JobsSettings(), Strict(list(queues)), 1.0, threading.Condition())


def idle(lanes, received=0, most=99):
    return Idle(lanes, received, most, Pace())


def test_from_a_limited_queue_no_more_is_fetched_than_idle_lanes_begin_at_once():
    backend = Limited(*["limited"] * 9)
    fetcher = backend.fetcher("limited")
    fetcher.request(0, 50, idle(3))
    assert len(fetcher.look().leases) == 3
    fetcher.look()  # they are on their way, so that no lane is known to be idle
    fetcher.request(3, 50, idle(2, received=3))
    assert len(fetcher.look().leases) == 2
    fetcher.request(5, 50, idle(2, received=5, most=1))
    assert len(fetcher.look().leases) == 1
    assert backend.tried == [("limited", 3), ("limited", 2), ("limited", 1)]


def test_a_limited_queue_is_asked_by_itself_and_the_others_together():
    backend = Limited()
    fetcher = backend.fetcher("a", "b", "limited", "c", "d")
    fetcher.request(0, 50, idle(2))
    assert fetcher.look() is None
    assert backend.tried == [("a", "b", 50), ("limited", 2), ("c", "d", 50)]


def test_while_no_lane_is_idle_a_limited_queue_is_passed_over_and_not_taken_for_empty():
    backend = Limited("limited")
    fetcher = backend.fetcher("limited")
    fetcher.request(0, 5)
    assert fetcher.look() is None
    assert (backend.tried, fetcher.empty) == ([], False)
    assert 0 < fetcher.seconds_left() < 1
    fetcher.request(0, 5, idle(1))
    assert fetcher.seconds_left() <= 0
    assert len(fetcher.look().leases) == 1


def test_a_lane_is_asked_for_where_a_limited_queue_has_jobs_and_no_lane_is_idle():
    backend = Limited("limited", "other", "other")
    fetcher = backend.fetcher("limited", "other")
    fetcher.request(0, 1)
    assert [lease.queue for lease in fetcher.look().leases] == ["other"]
    assert fetcher.lacks_lanes
    fetcher.request(1, 0, idle(1, received=1))  # of others it wants nothing
    assert fetcher.seconds_left() <= 0
    assert [lease.queue for lease in fetcher.look().leases] == ["limited"]
    assert fetcher.lacks_lanes  # they are on their way
    fetcher.request(2, 0, idle(0, received=2))
    assert not fetcher.lacks_lanes


def test_no_lane_is_asked_for_where_a_limited_queue_has_no_jobs():
    backend = Limited("other")
    fetcher = backend.fetcher("limited", "other")
    fetcher.request(0, 5)
    assert [lease.queue for lease in fetcher.look().leases] == ["other"]
    assert not fetcher.lacks_lanes


def test_a_queue_that_waited_for_a_lane_comes_before_others_when_there_is_one():
    backend = Limited("limited", "other", "other")
    fetcher = Fetcher(
        backend, JobsSettings(), InOrders(["limited", "other"], ["other", "limited"]), 1.0,
        threading.Condition(),
    )  # fmt: skip
    fetcher.request(0, 1)
    assert [lease.queue for lease in fetcher.look().leases] == ["other"]
    fetcher.request(1, 5, idle(1, received=1))
    assert [lease.queue for lease in fetcher.look().leases] == ["limited"]


class InOrders(Strict):
    """Another order each time."""

    def __init__(self, *orders):
        super().__init__(orders[0])
        self._orders = list(orders)

    def next(self):
        return self._orders.pop(0)
