"""A child whose parent ends in the middle of their conversation: that is no error."""

import os
import socket
from decimal import Decimal

import pytest

from django_jobs.backends.base import Lease
from django_jobs.backends.memory import MemoryBackend
from django_jobs.conf import JobsSettings
from django_jobs.execution.outcome import Failed
from django_jobs.handlers.registry import Registry
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.wire.envelope import Header, Message
from django_jobs.worker.admission import Gatekeeper
from django_jobs.worker.cycle import Cycle
from django_jobs.worker.policies import Policies
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.child import Child
from django_jobs.worker.pool.marks import Board, shared_memory
from django_jobs.worker.pool.messages import lease_to_tuple, outcome_from_tuple
from django_jobs.worker.pool.recording import ParentRenews, ParentSettles
from django_jobs.worker.settle import Settler

MESSAGE = Message(b"body", "", "", Header(0, 1, 0, 0), {"handler": "h"})
LEASE = Lease(id="job", queue="q", token="t", expires_at=0, message=MESSAGE)


@pytest.fixture
def marks():
    descriptor = shared_memory(1)
    marks = Board(descriptor, 1).marks(0)
    marks.reset()
    marks.take_back_from(1)  # none may begin, and of each the parent has to hear so
    yield marks
    os.close(descriptor)


@pytest.fixture
def abandoned():
    """What a child has heard when its parent is gone: jobs, and then nothing."""
    ours, theirs = socket.socketpair()
    parent = Channel(ours)
    parent.post(("run", [(0, n, 30.0, lease_to_tuple(LEASE)) for n in range(1, 4)]))
    parent.close()
    yield Channel(theirs)
    theirs.close()


def test_it_just_ends(abandoned, marks):
    Child(None, marks, abandoned).run()
    assert marks.ran == 0


def test_an_end_that_cannot_be_told_is_a_failure_and_the_child_goes_on(marks):
    marks.allow_all()
    ours, theirs = socket.socketpair()
    parent = Channel(ours)
    backend = MemoryBackend("default", {})
    settings = JobsSettings(snooze_delay=Decimal("0.2"))  # checked where settings are read
    backend.enqueue([make_outgoing(job="nobody.knows") for _ in range(2)])
    cycle = Cycle(
        backend=backend,
        settings=settings,
        gatekeeper=Gatekeeper(settings, make_opener(), Registry()),
        settler=Settler(backend, settings),
        asker=ParentSettles(),
        policies=Policies(settings, Registry()),
        renewer=ParentRenews(marks),
        worker="tests:1",
    )
    told = enumerate(backend.fetch(["default"], 2, 30.0), start=1)
    parent.post(("run", [(0, number, 30.0, lease_to_tuple(lease)) for number, lease in told]))
    ours.shutdown(socket.SHUT_WR)
    Child(cycle, marks, Channel(theirs)).run()
    theirs.close()
    for number, frame in enumerate(parent.receive_rest(), start=1):
        outcome = outcome_from_tuple(frame[3])
        assert frame[:3] == (0, number, "ran")
        assert isinstance(outcome, Failed)
        assert "its Snoozed cannot be told to the worker" in outcome.error.message
    assert marks.ran == marks.finished == 2
    parent.close()
