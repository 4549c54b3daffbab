"""How old what a process believes of a queue's limits may get, whatever it waits for."""

import time

import pytest

from django_jobs.backends.database import DatabaseBackend, meters
from django_jobs.backends.shared_breakers import LOOK_SECONDS
from django_jobs.operations import queues
from django_jobs.testing.factories import make_outgoing

pytestmark = pytest.mark.django_db


@pytest.fixture
def passes(monkeypatch):
    """Lets time pass for what a process believes, and waits for none of it."""
    passed = [0.0]
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + passed[0])

    def passes(seconds):
        passed[0] += seconds

    return passes


def test_a_full_queue_is_closed_no_longer_than_its_limits_are_believed(passes):
    backend = DatabaseBackend("database", {})
    backend.enqueue([make_outgoing(backend="database") for _ in range(3)])
    queues.limit_queue("default", {"rate_limit": "1/h"}, by="anna")
    assert len(backend.fetch(["default"], 1, 30.0)) == 1  # the limits are read here
    passes(LOOK_SECONDS - 0.1)
    assert backend.fetch(["default"], 1, 30.0) == []  # full, and closed for a while
    queues.limit_queue("default", {"rate_limit": "none"}, by="anna")
    passes(0.1)
    assert len(backend.fetch(["default"], 1, 30.0)) == 1


def test_a_queue_of_which_all_places_are_taken_is_looked_at_again_soon(passes):
    backend = DatabaseBackend("database", {})
    backend.enqueue([make_outgoing(backend="database") for _ in range(2)])
    queues.limit_queue("default", {"concurrency": 1}, by="anna")
    (lease,) = backend.fetch(["default"], 2, 30.0)
    assert backend.fetch(["default"], 1, 30.0) == []
    backend.ack([lease])
    passes(meters.FULL_SECONDS)
    assert len(backend.fetch(["default"], 1, 30.0)) == 1
