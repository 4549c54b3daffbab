"""The parent's ends of the processes that send signals and tick, with no real ones."""

import selectors
import socket
from types import SimpleNamespace

import pytest

from django_jobs.telemetry import events
from django_jobs.worker.pool import lifecycle, side_processes
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.forkserver import ForkServer
from django_jobs.worker.pool.side_processes import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_FAILURES,
    MOST_WAITING,
    SchedulerProcess,
    SignalProcess,
)

SLOT = 7


@pytest.fixture
def lost():
    lost = []

    def note(event):
        if isinstance(event, events.SignalLost):
            lost.append(event)

    events.subscribe(note)
    yield lost
    events.unsubscribe(note)


@pytest.fixture
def signal_process():
    """Of a fork server that has ended."""
    ours, theirs = socket.socketpair()
    theirs.close()
    server = ForkServer(ours, -1, lambda: None)
    with selectors.DefaultSelector() as selector:
        yield SignalProcess(server, SLOT, selector)
    ours.close()


def test_too_many_that_wait_are_not_kept(signal_process, lost):
    for number in range(MOST_WAITING + 2):
        signal_process.send("job_dead", {"job_id": str(number)})
    assert [event.about for event in lost] == [str(MOST_WAITING), str(MOST_WAITING + 1)]
    assert not signal_process.is_over()


def test_when_no_process_can_be_started_it_gives_up(signal_process, lost):
    signal_process.send("job_dead", {"job_id": "1"})
    for _ in range(MOST_FAILURES):
        assert not lost
        signal_process.step()
    assert [(event.about, event.why) for event in lost] == [
        ("1", "no process could be started to send it")
    ]
    assert signal_process.is_over()


def test_what_was_not_told_when_the_worker_ends_is_said_to_be_lost(signal_process, lost):
    signal_process.send("job_crashed", {"job_id": "1"})
    signal_process.end()
    assert [(event.signal, event.about) for event in lost] == [("job_crashed", "1")]


class Server:
    """A fork server with processes that are born when a test says so."""

    def __init__(self):
        self.requested = []
        self.ends = []

    def request(self, slot):
        self.requested.append(slot)
        ours, theirs = socket.socketpair()
        self.ends.append(theirs)
        return Channel(ours)


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(lifecycle, "time", clock)
    monkeypatch.setattr(side_processes, "time", clock)
    return clock


@pytest.fixture
def server():
    server = Server()
    yield server
    for end in server.ends:
        end.close()


@pytest.fixture
def kills(monkeypatch):
    kills = []
    monkeypatch.setattr(lifecycle, "kill_group", kills.append)
    return kills


def test_a_scheduler_process_that_dies_is_replaced_after_pauses_that_grow(server, clock):
    cron = SchedulerProcess(server, SLOT, wanted=True)
    pauses = []
    for _ in range(10):
        began = clock.now
        count = len(server.requested)
        while len(server.requested) == count:
            cron.step()
            clock.now += FIRST_PAUSE / 2
        pauses.append(clock.now - began - FIRST_PAUSE / 2)
        cron.born(4711)
        cron.ended("the process ended with exit code 1")
    assert pauses == [0.0, *(FIRST_PAUSE * 2**number for number in range(7)), 60.0, 60.0]
    clock.now += LONGEST_PAUSE
    cron.step()
    cron.born(4712)
    clock.now += LONGEST_PAUSE + 1
    cron.ended("the process ended with exit code 1")  # it lived long: no failure before counts
    assert cron.failures.pause == FIRST_PAUSE


def test_a_scheduler_process_that_is_not_wanted_is_never_started(server, clock):
    cron = SchedulerProcess(server, SLOT, wanted=False)
    cron.step()
    assert (server.requested, cron.is_over()) == ([], True)


def test_a_scheduler_process_that_leaves_does_not_come_again(server, clock, kills):
    cron = SchedulerProcess(server, SLOT, wanted=True)
    cron.step()
    cron.born(4711)
    cron.leave()
    cron.leave()
    assert Channel(server.ends[0], cron.channel.key).receive() == "leave"
    assert not cron.is_over()
    cron.hurry()
    assert not cron.is_over()
    clock.now += side_processes.HURRY_SECONDS
    assert cron.is_over()
    cron.end()
    assert kills == [4711]
    cron.ended("the process was killed by SIGKILL")
    cron.step()
    assert server.requested == [SLOT]


def test_a_signal_process_that_is_not_ready_in_time_is_killed(server, clock, kills, lost):
    with selectors.DefaultSelector() as selector:
        process = SignalProcess(server, SLOT, selector)
        process.send("job_dead", {"job_id": "1"})
        process.step()
        process.born(4711)
        for _ in range(3):
            process.step()
        assert (server.requested, kills) == ([SLOT], [])
        clock.now += side_processes.BIRTH_SECONDS + 1
        process.step()
        process.step()
        assert kills == [4711]
        process.ended("the process was killed by SIGKILL")
        process.step()
        assert server.requested == [SLOT, SLOT]
        assert not lost
        process.end()
