"""Looking for work beside a supervisor that changes what it wishes for."""

import threading

import pytest

from django_jobs.backends.memory import MemoryBackend
from django_jobs.clock import ManualClock
from django_jobs.conf import JobsSettings
from django_jobs.testing.factories import make_outgoing
from django_jobs.worker.pool.looking import Looking
from django_jobs.worker.queues import Strict


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
