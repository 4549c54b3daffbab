"""What a child does with what it was handed, and what it says of it."""

import os
import socket
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from unittest import mock

import pytest

from django_jobs.backends.base import Lease
from django_jobs.backends.memory import MemoryBackend
from django_jobs.conf import JobsSettings
from django_jobs.handlers.registry import Registry
from django_jobs.outcome import Failed, Snoozed
from django_jobs.testing.factories import make_opener, make_outgoing
from django_jobs.wire.envelope import Header, Message
from django_jobs.worker.admission import Gatekeeper, Policies
from django_jobs.worker.executor import Executor
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.child import SMALL_BODY, TOGETHER, ChildMainLoop
from django_jobs.worker.pool.children import Child as Crewed
from django_jobs.worker.pool.children import Lane
from django_jobs.worker.pool.messages import lease_to_tuple, outcome_from_tuple
from django_jobs.worker.pool.shared_memory import Board, shared_memory
from django_jobs.worker.settle import Settler

MESSAGE = Message("body", "", "", Header(0, 1, 0, 0), {"handler": "h"})
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
def backend():
    return MemoryBackend("default", {})


@pytest.fixture
def executor(backend):
    settings = JobsSettings(snooze_delay=Decimal("0.2"))  # checked where settings are read
    return Executor(
        backend=backend,
        settings=settings,
        gatekeeper=Gatekeeper(settings, CountingOpener(make_opener()), Registry()),
        settler=Settler(backend, settings),
        policies=Policies(settings, Registry()),
        worker="tests:1",
    )


class CountingOpener:
    """Opens as another does, and notes how often each message is opened."""

    verify_signatures = True

    def __init__(self, opener):
        self._opener = opener
        self.opened = Counter()

    def open(self, message, queue):
        self.opened[message.body] += 1
        return self._opener.open(message, queue)


class Parent:
    """The other end of a child's conversation, which says all it has to say at once."""

    def __init__(self):
        ours, self.theirs = socket.socketpair()
        self._channel = Channel(ours)

    def hands_over(self, leases, first=1):
        told = enumerate(leases, start=first)
        self._channel.post(
            ("run", [(0, number, 30.0, lease_to_tuple(one)) for number, one in told])
        )

    def hears(self, executor, marks):
        """What a child says that runs all it was given."""
        self._channel.sock.shutdown(socket.SHUT_WR)
        with closing(self._channel):
            with closing(self.theirs):
                ChildMainLoop(executor, marks, Channel(self.theirs)).run()
            return self._channel.receive_rest()


@pytest.fixture
def abandoned():
    """What a child has heard when its parent is gone: jobs, and then nothing."""
    ours, theirs = socket.socketpair()
    parent = Channel(ours)
    parent.post(("run", [(0, n, 30.0, lease_to_tuple(LEASE)) for n in range(1, 4)]))
    parent.close()
    yield Channel(theirs)
    theirs.close()


def leased(backend, count, **terms):
    backend.enqueue([make_outgoing(**terms) for _ in range(count)])
    return backend.fetch(["default"], count, 30.0)


def test_it_just_ends(abandoned, executor, marks):
    ChildMainLoop(executor, marks, abandoned).run()
    assert marks.ran == 0


def test_an_end_that_cannot_be_told_is_a_failure_and_the_child_goes_on(backend, executor, marks):
    marks.allow_all()
    parent = Parent()
    parent.hands_over(leased(backend, 2, job="nobody.knows"))
    first, second = parent.hears(executor, marks)
    assert first[:3] == (0, 1, "ran")
    outcome = outcome_from_tuple(first[3])
    assert isinstance(outcome, Failed)
    assert "its Snoozed cannot be sent to the worker" in outcome.error.message
    assert second[:4] == (0, 2, "ran", first[3])
    assert marks.ran == marks.finished == 2


def test_what_ends_alike_is_told_shortly_until_something_does_not(backend, executor, marks):
    marks.allow_all()
    settings = JobsSettings(snooze_delay=0.2)
    executor = replace(executor, gatekeeper=replace(executor.gatekeeper, settings=settings))
    parent = Parent()
    alike, other = (leased(backend, 3, job="nobody.knows"), leased(backend, 2, job="nor.this"))
    parent.hands_over([*alike, *other])
    frames = parent.hears(executor, marks)
    assert [frame[:3] for frame in frames] == [
        (0, 1, "ran"), (0, 2, "alike"), (0, 3, "alike"), (0, 4, "ran"), (0, 5, "alike"),
    ]  # fmt: skip
    child = Crewed(slot=0, pid=1, channel=None)
    child.lanes.append(Lane(child, 0, marks))
    heard = [child.read_frame(frame)[1] for frame in frames]
    assert [said.terms.job for said, _ in heard] == ["nobody.knows"] * 3 + ["nor.this"] * 2
    assert {type(said.outcome) for said, _ in heard} == {Snoozed}
    moments = [moment for _, times in heard for moment in times]
    assert moments == sorted(moments)
    assert time.time() * 1e6 - 60e6 < moments[0]


@pytest.mark.parametrize("count", [1, TOGETHER, TOGETHER + 1, 3 * TOGETHER])
def test_messages_are_opened_once_and_their_jobs_run_in_order(backend, executor, marks, count):
    marks.allow_all()
    leases = leased(backend, count, job="nobody.knows")
    parent = Parent()
    parent.hands_over(leases)
    frames = parent.hears(executor, marks)
    assert [number for _, number, *_ in frames] == list(range(1, count + 1))
    opened = executor.gatekeeper.opener.opened
    assert opened == dict.fromkeys([lease.message.body for lease in leases], 1)


def test_a_large_message_is_opened_when_its_job_has_begun(backend, executor, marks):
    marks.take_back_from(1)
    leases = [
        *leased(backend, 1, payload={"args": ["x" * SMALL_BODY], "kwargs": {}}),
        *leased(backend, 1),
    ]
    parent = Parent()
    parent.hands_over(leases)
    assert [frame[2] for frame in parent.hears(executor, marks)] == ["skipped", "skipped"]
    assert executor.gatekeeper.opener.opened == {leases[1].message.body: 1}


def test_what_cannot_be_opened_is_refused_as_it_is_elsewhere(backend, executor, marks):
    marks.allow_all()
    (lease,) = leased(backend, 1)
    forged = lease._replace(message=lease.message._replace(signature="0" * 64))
    parent = Parent()
    parent.hands_over([forged])
    (frame,) = parent.hears(executor, marks)
    outcome = outcome_from_tuple(frame[3])
    assert outcome.reason == "rejected-signature"
    assert outcome == executor.gatekeeper.admit(forged, 0).outcome


def test_what_breaks_the_opening_shows_when_its_job_has_begun(backend, executor, marks):
    marks.allow_all()
    parent = Parent()
    parent.hands_over(leased(backend, 2))
    with (
        mock.patch.object(CountingOpener, "open", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        parent.hears(executor, marks)
    assert (marks.ran, marks.finished) == (1, 0)
