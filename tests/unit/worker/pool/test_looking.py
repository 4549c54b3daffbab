"""Looking for work beside a supervisor that changes what it wishes for."""

import select
import threading

import pytest

from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker.asking import Asker
from django_jobs.worker.pool.facts import WakePipe
from django_jobs.worker.pool.looking import Looking
from django_jobs.worker.pool.marks import Places
from django_jobs.worker.pool.stores import StoreThreads
from django_jobs.worker.queues import Strict
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Outage


class ChangesItsMind(MemoryBackend):
    """While it is asked whether there may be work, the wish for it is taken back."""

    def __init__(self):
        super().__init__("default", {"CLOCK": ManualClock()})
        self.limits, self.looking = [], None

    def fetch(self, queues, limit, lease_seconds):
        self.limits.append(limit)
        return super().fetch(queues, limit, lease_seconds)

    def wait(self, queues, timeout):
        self.looking.wish(0, 0)
        return True


@pytest.fixture
def backend():
    backend = ChangesItsMind()
    backend.enqueue([make_outgoing()])
    queues = Strict(["default"])
    backend.looking = Looking(backend, JobsSettings(), queues, 1.0, threading.Condition())
    return backend


def test_what_is_wished_for_no_more_is_not_fetched(backend):
    backend.looking.wish(0, 5)
    assert backend.looking.begin()
    assert len(backend.looking.look().leases) == 1
    assert backend.looking.look() is None
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
    looking = Looking(backend, JobsSettings(), Strict(["default"]), 1.0, threading.Condition())
    looking.wish(0, 1)
    for _ in range(2):
        assert looking.look() is None
        assert not looking.empty
        assert looking.seconds_left() <= 0
    assert len(looking.look().leases) == 1


class TakesItsTime(MemoryBackend):
    """Finds nothing, once it may."""

    def __init__(self):
        super().__init__("default", {})
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def fetch(self, queues, limit, lease_seconds):
        self.asked.set()
        self.may_answer.wait(20.0)
        return []


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
        threads.wish(0, 1)
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
