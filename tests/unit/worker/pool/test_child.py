"""A child whose parent ends in the middle of their conversation: that is no error."""

import os
import socket

import pytest

from django_jobs.backends.base import Lease
from django_jobs.wire.envelope import Header, Message
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.child import Child
from django_jobs.worker.pool.loop_child import LoopChild
from django_jobs.worker.pool.marks import Board, shared_memory
from django_jobs.worker.pool.messages import lease_to_tuple
from django_jobs.worker.pool.recording import Recorder

MESSAGE = Message(b"body", "", "", Header(0, 1, 0, 0), {"handler": "h"})
LEASE = Lease(id="job", queue="q", token="t", expires_at=0, message=MESSAGE)


@pytest.fixture
def marks():
    descriptor = shared_memory(2)
    board = Board(descriptor, 2)
    marks = [board.marks(0), board.marks(1)]
    for one in marks:
        one.reset()
        one.take_back_from(1)  # nothing may begin, and each has to be told so
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


def test_one_that_runs_a_job_at_a_time_just_ends(abandoned, marks):
    Child(None, Recorder(), marks[0], abandoned).run()
    assert marks[0].ran == 0


def test_one_that_runs_several_at_once_just_ends(abandoned, marks):
    LoopChild([(None, Recorder(), one) for one in marks], abandoned).run()
    assert marks[0].ran == 0
