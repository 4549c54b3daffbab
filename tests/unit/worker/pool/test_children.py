"""What the parent gives to a child and takes back; the other end is played by the test."""

import os
import signal
import socket
import time

import pytest

from django_jobs.backends.base import Lease
from django_jobs.wire.envelope import Header, Message
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.children import (
    Child,
    Held,
    Lane,
)
from django_jobs.worker.pool.forkserver import describe_exit
from django_jobs.worker.pool.messages import BadFrame
from django_jobs.worker.pool.shared_memory import Board, shared_memory


def held(number, size=4):
    message = Message("b" * size, "", "", Header(0, 1, 0, 0), {"handler": "h"})
    lease = Lease(id=f"job{number}", queue="q", token="t", expires_at=0, message=message)
    return Held.of(lease, 30.0, 1e9)


@pytest.fixture
def marks():
    descriptor = shared_memory(1)
    marks = Board(descriptor, 1).marks(0)
    marks.reset()
    yield marks
    os.close(descriptor)


@pytest.fixture
def child(marks):
    ours, theirs = socket.socketpair()
    child = Child(0, 0, Channel(ours))
    child.lanes.append(Lane(child, 0, marks))
    yield child
    ours.close()
    theirs.close()


@pytest.fixture
def lane(child):
    return child.lanes[0]


def ids(taken):
    return [one.lease.id for one in taken]


def test_what_has_not_begun_is_taken_back_from_the_end(lane, marks):
    lane.give([held(n) for n in range(1, 6)])
    assert marks.begin(1)
    assert lane.running()[1].lease.id == "job1"
    assert ids(lane.take_back(2)) == ["job4", "job5"]
    assert list(lane.held) == [1, 2, 3]
    assert not lane.accepts


def test_for_how_long_it_runs_is_told_by_a_clock_that_nobody_sets(lane, marks, monkeypatch):
    lane.give([held(1)])
    before = time.monotonic()
    assert marks.begin(1)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert lane.is_running_since(time.monotonic() + 0.001)
    assert not lane.is_running_since(before)


def test_it_can_be_asked_again_before_it_has_come_across_the_first(lane, marks):
    lane.give([held(n) for n in range(1, 6)])
    assert marks.begin(1)
    lane.take_back(2)
    assert ids(lane.take_back(1)) == ["job3"]
    assert ids(lane.take_back(9)) == ["job2"]
    assert lane.take_back(9) == []
    marks.done(1)
    lane.pop(1)
    for number in range(2, 6):
        assert not marks.begin(number)
        assert lane.pop(number) is None
    assert lane.accepts
    lane.give([held(6)])
    assert marks.begin(6)


def test_what_it_begins_meanwhile_stays_with_it(lane, marks):
    lane.give([held(1), held(2)])
    original = marks.take_back_from

    def late(number):
        assert marks.begin(1)  # the child is faster
        return original(number)

    lane.marks = type("Late", (), {"started": 0, "take_back_from": staticmethod(late)})()
    assert ids(lane.take_back(2)) == ["job2"]
    assert list(lane.held) == [1]
    lane.marks = marks
    assert lane.pop(1).lease.id == "job1"


def test_a_number_come_across_after_it_was_taken_back_is_returned_once(lane, marks):
    lane.give([held(1), held(2)])
    marks.take_back_from(1)
    lane.revoked.update({1, 2})
    assert not marks.begin(1)
    assert lane.pop(1).lease.id == "job1"  # it still counted as the child's
    assert lane.pop(1) is None


def test_an_end_that_overtakes_another_is_not_believed(lane):
    lane.give([held(n) for n in (1, 2, 3)])
    with pytest.raises(BadFrame):
        lane.pop(2)
    assert list(lane.held) == [1, 2, 3]
    assert lane.pop(9) is None
    assert ids([lane.pop(1), lane.pop(2), lane.pop(3)]) == ["job1", "job2", "job3"]
    assert lane.pop(3) is None


def test_nothing_is_taken_when_nothing_is_asked_for(lane):
    lane.give([held(1)])
    assert lane.take_back(0) == []


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (0, "exit code 0"),
        (7 << 8, "exit code 7"),
        (int(signal.SIGSEGV), "SIGSEGV"),
        (int(signal.SIGRTMIN) + 3, f"signal {int(signal.SIGRTMIN) + 3}"),
    ],
)
def test_an_end_in_words(status, told):
    assert told in describe_exit(status)


def test_killing_says_why_once_and_whom_it_was_for(child):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pause()
        os._exit(0)
    child.pid = pid
    child.kill("timeout", 3)
    child.kill("stop", 4)
    assert (child.killed, child.culprit) == ("timeout", 3)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
