"""Processes of the fork server, whose part is played by the test; real ones are elsewhere."""

import os
import selectors
import signal
import socket
from types import SimpleNamespace

import pytest

from django_jobs.worker.pool import lifecycle
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.forkserver import ForkServer
from django_jobs.worker.pool.lifecycle import ChildSlots, Failures, Process, Processes
from django_jobs.worker.pool.shared_memory import Places, shared_memory


class Clock:
    """The monotonic clock of the code under test."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class Server:
    """A fork server that does what a test says."""

    def __init__(self):
        self.news = []
        self.requested = []
        self.is_gone = False

    def request(self, slot):
        if self.is_gone:
            raise BrokenPipeError("gone")
        self.requested.append(slot)
        ours, theirs = socket.socketpair()
        theirs.close()
        return Channel(ours)

    def serve(self, *news):
        """A real parent's end that reports these."""
        ours, theirs = socket.socketpair()
        with theirs:
            channel = Channel(theirs)
            for facts in news:
                channel.send(facts)
        return ForkServer(ours, -1, lambda: None)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(lifecycle, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def process(server, clock):
    process = Process(server, 3, Failures(0.125, 0.375))
    yield process
    process.close()


def test_a_process_is_started_once_for_a_request(process, server):
    assert process.is_vacant
    process.request()
    assert not process.is_vacant
    for _ in range(3):
        process.step()
    assert server.requested == [3]
    assert not process.is_vacant  # it is on its way
    process.born(4711)
    process.step()
    assert (process.pid, server.requested, process.is_vacant) == (4711, [3], False)


def test_one_that_ended_leaves_its_slot_to_the_next(process, server):
    process.request()
    process.step()
    process.born(4711)
    process.ended("the process ended with exit code 0")
    assert (process.pid, process.channel, process.is_vacant) == (0, None, True)
    process.request()
    process.step()
    assert server.requested == [3, 3]


def test_a_connection_that_closes_before_the_birth_requests_no_other(process):
    process.request()
    process.step()
    process.close()
    assert not process.is_vacant


def test_a_request_can_be_withdrawn_until_it_is_made(process, server):
    process.request()
    process.withdraw()
    process.step()
    assert (server.requested, process.is_vacant) == ([], True)


def test_after_failures_there_are_pauses_twice_as_long_each_time_up_to_the_longest(
    process, server, clock
):
    pauses = []
    for _ in range(4):
        process.request()
        began = clock.now
        while not process.channel:
            process.step()
            clock.now += 1 / 64
        pauses.append(clock.now - began - 1 / 64)
        process.failed("no memory")
        assert process.is_vacant
    assert pauses == [0.0, 0.125, 0.25, 0.375]
    assert (process.failures.count, process.failures.last) == (
        4,
        "no process can be started: no memory",
    )
    process.failures.clear()
    assert process.failures.pause == 0.0


def test_pauses_stay_finite_after_thousands_of_failures():
    failures = Failures(0.5, 60.0)
    for _ in range(5000):
        failures.add("it died")
    assert failures.pause == 60.0


def test_without_a_first_pause_there_is_none():
    failures = Failures()
    failures.add("it died")
    assert failures.pause == 0.0


def test_a_request_that_cannot_be_made_is_a_failure(process, server):
    server.is_gone = True
    process.request()
    process.step()
    assert process.failures.last == "no process can be started: gone"
    assert process.is_vacant


class Noting(Process):
    """Notes its news."""

    def __init__(self, slot, notes):
        super().__init__(None, slot, Failures())
        self.notes = notes

    def born(self, pid):
        super().born(pid)
        self.notes.append((self.slot, "born", pid))

    def failed(self, why):
        super().failed(why)
        self.notes.append((self.slot, "failed", why))

    def ended(self, how):
        super().ended(how)
        self.notes.append((self.slot, "ended", how))


def test_each_process_gets_the_news_of_its_own_slot(server):
    notes = []
    fork_server = server.serve(
        ("born", 1, 11),
        ("failed", 2, "no memory"),
        ("born", 2, 22),
        ("ended", 11, int(signal.SIGKILL)),
        ("born", 1, 12),
        ("ended", 22, 3 << 8),
        ("ended", 12, 0),
    )
    processes = Processes(fork_server, [Noting(1, notes), Noting(2, notes)])
    processes.read_news()
    assert notes == [
        (1, "born", 11),
        (2, "failed", "no memory"),
        (2, "born", 22),
        (1, "ended", "the process was killed by SIGKILL"),
        (1, "born", 12),
        (2, "ended", "the process ended with exit code 3"),
        (1, "ended", "the process ended with exit code 0"),
    ]
    with pytest.raises(EOFError):
        processes.read_news()
    fork_server.close()


def test_a_child_that_is_born_while_its_worker_ends_is_told_so():
    places = Places(1)
    memory = shared_memory(places.slots)
    ours, theirs = socket.socketpair()
    server = ForkServer(ours, memory, lambda: None)
    with theirs, selectors.DefaultSelector() as selector:
        slots = ChildSlots(server, places, selector, print, print)
        slots.request(0)
        slots.step()
        _, (descriptor,), _, _ = socket.recv_fds(theirs, 2, 1)  # as the fork server does
        slots.close()
        with socket.socket(fileno=descriptor) as sock:
            channel = Channel.for_child(sock)
            sock.settimeout(1.0)
            with pytest.raises(EOFError):
                channel.receive()
    server.close()
    os.close(memory)


@pytest.fixture
def slots(server, clock):
    places = Places(1, concurrency=2)
    memory = shared_memory(places.slots)
    server.memory, server.quick_seconds = memory, 5.0
    deaths = []

    def on_death(child, how):
        slots.remove(child, how)
        deaths.append((child.slot, child.isolated, how))

    with selectors.DefaultSelector() as selector:
        slots = ChildSlots(server, places, selector, print, on_death)

        slots.deaths = deaths
        yield slots
        slots.close()
    os.close(memory)


def bear(slots, number):
    slots.step()
    slot = list(slots)[number]
    slot.born(100 + number)
    return slot, slots.by_slot[number]


def test_a_replacement_has_a_slot_of_its_own(slots, server):
    slots.request(0)
    bear(slots, 0)
    assert slots.request_another()
    assert list(slots.requested) == [list(slots)[1]]
    slots.step()
    assert server.requested == [0, 1]
    assert not slots.requested


def test_children_for_isolated_jobs_are_born_one_after_the_other(slots, server):
    slots.request_isolated(needed=False)
    slots.request_isolated(needed=True)
    slots.request_isolated(needed=True)  # the first is not up yet
    slots.step()
    assert server.requested == [0]
    slot, child = bear(slots, 0)
    assert child.isolated
    slots.request_isolated(needed=True)
    assert not slots.requested
    child.lanes[0].marks.beat(1.0)
    slots.request_isolated(needed=True)
    slots.step()
    assert server.requested == [0, 1]
    slot.ended("it went")
    assert slots.deaths == [(0, True, "it went")]
    assert (slot.isolated, slot.is_vacant, dict(slots.by_slot)) == (False, True, {})


def test_a_child_that_dies_soon_without_a_job_is_a_failure(slots, clock):
    for lived, ran, count in ((1.0, 0, 1), (10.0, 0, 1), (1.0, 7, 1), (1.0, 0, 2)):
        slots.request(0)
        clock.now += 1.0  # the pause
        slot, child = bear(slots, 0)
        if ran:
            assert child.lanes[0].marks.begin(ran)
        clock.now += lived
        slot.ended("it died")
        assert slots.failures.count == count
    assert slots.failures.last == "it died"


def test_a_child_that_cannot_be_born_is_requested_again(slots, server, clock):
    slots.request(0)
    slots.step()
    next(iter(slots)).failed("no memory")
    slots.step()
    assert server.requested == [0]
    clock.now += lifecycle.FIRST_PAUSE
    slots.step()
    assert server.requested == [0, 0]
