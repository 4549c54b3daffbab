"""A child whose parent ends in the middle of their conversation: that is no error."""

import os
import socket

import pytest

from django_jobs.backends.base import Lease
from django_jobs.wire.envelope import Header, Message
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.child import Child
from django_jobs.worker.pool.marks import Board, shared_memory
from django_jobs.worker.pool.messages import lease_to_tuple
from django_jobs.worker.pool.recording import Recorder

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
    Child(None, Recorder(), marks, abandoned).run()
    assert marks.ran == 0
