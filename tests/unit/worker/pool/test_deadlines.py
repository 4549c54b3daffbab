"""When a child has hung: the time of the parent counts, not that of a clock on the wall."""

import os
import signal
import socket
from unittest import mock

import pytest

from django_jobs.backends.base import Lease
from django_jobs.wire.envelope import Header, Message
from django_jobs.worker.pool import deadlines
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.children import Child, Held, Lane
from django_jobs.worker.pool.shared_memory import Board, shared_memory


@pytest.fixture
def process():
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pause()
        os._exit(0)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def child(process):
    descriptor = shared_memory(2)
    ours, theirs = socket.socketpair()
    child = Child(0, process, Channel(ours))
    for index in range(2):
        marks = Board(descriptor, 2).marks(index)
        marks.reset()
        child.lanes.append(Lane(child, index, marks))
    child.lanes[0].marks.beat(1.0)
    yield child
    ours.close()
    theirs.close()
    os.close(descriptor)


def give(lane, count):
    message = Message(b"body", "", "", Header(0, 1, 0, 0), {"handler": "h"})
    lease = Lease(id="job", queue="q", token="t", expires_at=0, message=message)
    lane.give([Held.of(lease, 30.0, 1e9) for _ in range(count)])


class Dispatch:
    def __init__(self):
        self.ready = []


def looks(child, *moments):
    """What was taken back in looks at these moments."""
    dispatch = Dispatch()
    for moment in moments:
        with mock.patch("time.monotonic", return_value=moment):
            deadlines.enforce_deadlines([child], dispatch)
    return dispatch.ready


def every(first, last, step=0.3):
    return [first + step * number for number in range(round((last - first) / step) + 1)]


def test_one_that_owes_nothing_may_rest(child):
    looks(child, *every(100, 200))
    assert not child.killed


def test_one_that_does_not_begin_is_killed_in_time(child):
    give(child.lanes[0], 3)
    looks(child, *every(100, 107))
    assert not child.killed
    looks(child, *every(107.3, 110))
    assert (child.killed, child.culprit) == ("silent", 0)


def test_time_in_which_the_parent_was_frozen_is_not_laid_on_a_child(child):
    give(child.lanes[0], 1)
    looks(child, 100, 100.3, 5000, 5000.3, 90000)
    assert not child.killed


def test_whoever_goes_on_has_not_hung(child):
    lane = child.lanes[0]
    give(lane, 30)
    for number in range(1, 30):
        assert lane.marks.begin(number)
        lane.marks.done(number)
        looks(child, *every(100 + 7 * number, 106 + 7 * number))
        lane.pop(number)
    assert not child.killed


def test_what_it_refuses_to_begin_is_going_on_too(child):
    lane = child.lanes[0]
    give(lane, 3)
    assert len(lane.take_back_all()) == 3
    for number in range(1, 4):
        looks(child, *every(100 + 7 * number, 106 + 7 * number))
        assert not lane.marks.begin(number)
        assert lane.pop(number) is None
    looks(child, *every(200, 300))
    assert not child.killed


@pytest.mark.parametrize("deadline", [float("inf"), 1e6])
def test_user_code_may_run_for_as_long_as_its_job_allows(child, deadline):
    lane = child.lanes[0]
    give(lane, 1)
    assert lane.marks.begin(1)
    lane.marks.run_until(deadline)
    looks(child, *every(100, 500))
    assert not child.killed


def test_beside_user_code_that_runs_it_only_loses_what_it_did_not_begin(child):
    busy, waiting = child.lanes
    give(busy, 1)
    assert busy.marks.begin(1)
    busy.marks.run_until(float("inf"))
    give(waiting, 2)
    assert len(looks(child, *every(100, 110))) == 2
    assert not child.killed
    busy.marks.done(1)
    busy.pop(1)
    looks(child, *every(110, 130))
    assert child.killed == "silent"  # it never came to what was taken back


def test_a_loop_that_goes_on_and_does_not_come_to_a_job_is_given_no_more(child):
    busy, waiting = child.lanes
    give(busy, 1)
    assert busy.marks.begin(1)
    busy.marks.run_until(float("inf"))
    give(waiting, 2)
    for moment in every(100, 130):
        busy.marks.beat(moment)
        looks(child, moment)
    assert child.retiring
    assert not child.killed


def test_a_verdict_that_does_not_come_ends_the_child(child):
    told, busy = child.lanes
    give(busy, 1)
    assert busy.marks.begin(1)
    busy.marks.run_until(float("inf"))
    give(told, 1)
    assert told.marks.begin(2)
    told.marks.done(2)
    looks(child, *every(100, 110))
    assert child.killed == "silent"


def test_one_that_is_not_ready_yet_has_more_time(child):
    child.lanes[0].marks.beat(0.0)
    give(child.lanes[0], 1)
    looks(child, *every(100, 155))
    assert not child.killed
    looks(child, *every(155.3, 165))
    assert child.killed == "silent"
