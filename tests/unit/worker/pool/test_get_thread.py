"""What the thread that gets work says of an outage."""

import threading
from collections import Counter

import pytest
from django.db import OperationalError

from django_jobs.backends.base import HasHousekeeping, HousekeepingDue, LooksAhead
from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.telemetry import events
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker import store
from django_jobs.worker.duties import Tally
from django_jobs.worker.pool.get_thread import Get
from django_jobs.worker.pool.keep_thread import Holdings
from django_jobs.worker.pool.shared_memory import Places
from django_jobs.worker.pool.thread_messages import Shared
from django_jobs.worker.queues import Strict
from django_jobs.worker.settle import Settler
from django_jobs.worker.store import Asker, Outage

LEASE = 30.0


class Remembers(MemoryBackend, HasHousekeeping, LooksAhead):
    """Tells what there is to look after without being asked, as a database's last look does."""

    def __init__(self):
        super().__init__("default", {"CLOCK": ManualClock()})
        self.down = self.slow = False

    def fetch(self, queues, limit, lease_seconds):
        self.answer()
        return super().fetch(queues, limit, lease_seconds)

    def wait(self, queues, timeout):
        self.answer()
        if self.slow:
            raise OperationalError("it took too long")
        return super().wait(queues, timeout)

    def housekeeping_due(self):
        return HousekeepingDue(reap=False, clean_up=False)

    def answer(self):
        if self.down:
            raise ConnectionError("gone")


@pytest.fixture
def told(monkeypatch):
    """How often each event was emitted, with outages that are waited out at once."""
    for pause in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(store, pause, 0.0)
    emitted = Counter()

    def count(event):
        emitted[type(event)] += 1

    events.subscribe(count)
    yield emitted
    events.unsubscribe(count)


@pytest.fixture
def backend():
    return Remembers()


@pytest.fixture
def get(backend, told):
    """Told once that there is an idle lane."""
    asker = Asker(Settler(backend, JobsSettings()), Outage("default"))
    shared = Shared(
        backend=backend,
        settings=JobsSettings(),
        asker=asker,
        holdings=Holdings(LEASE),
        tally=Tally(backend),
        lease=LEASE,
        report=lambda _: None,
        wake=lambda: None,
        stopped=lambda: False,
    )
    get = Get(shared, threading.Condition(), Strict(["default"]), Places(1), 1.0)
    get.fetcher.request(0, 1)
    get.turn()
    return get


def test_an_outage_ends_with_an_answer_of_the_store_and_not_with_what_is_remembered(
    backend, get, told
):
    backend.down = True
    for _ in range(10):
        get.fetcher.hint()
        get.turn()
    assert (told[events.StoreLost], told[events.StoreFound]) == (1, 0)
    backend.down = False
    get.turn()
    get.turn()
    assert (told[events.StoreLost], told[events.StoreFound]) == (1, 1)


def test_a_look_that_takes_too_long_keeps_nobody_from_claiming_after_an_outage(backend, get):
    backend.down = True
    get.fetcher.hint()
    get.turn()
    backend.down, backend.slow = False, True
    outgoing = make_outgoing()
    backend.enqueue([outgoing])
    for _ in range(5):
        get.fetcher.hint()
        get.turn()
    assert backend.jobs[outgoing.id].token
