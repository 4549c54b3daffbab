"""The thread that waits: it hints when armed, rests otherwise, and never spins."""

import threading
import time

import pytest

from django_jobs.backends.base import LooksAhead
from django_jobs.backends.memory import MemoryBackend
from django_jobs.worker.pool.wait_thread import Waiter
from django_jobs.worker.queues import Strict

PATIENCE = 15.0


class Eager(MemoryBackend, LooksAhead):
    """Says that there may be work whenever it is asked, or fails to say anything."""

    def __init__(self, error=None):
        super().__init__("eager", {})
        self.error, self.waits = error, 0

    def wait(self, queues, timeout):
        self.waits += 1
        if self.error is not None:
            raise self.error
        return True


class Hung(Eager):
    def __init__(self):
        super().__init__()
        self.released = threading.Event()

    def wait(self, queues, timeout):
        self.waits += 1
        self.released.wait(PATIENCE)
        return False

    def stop_waiting(self):
        self.released.set()


@pytest.fixture
def make():
    made = []

    def make(backend, hint, poll_interval=1.0):
        made.append(Waiter(backend, Strict(["default"]), poll_interval, hint))
        made[-1].start()
        return made[-1]

    yield make
    for waiter in made:
        waiter.end()
        waiter._thread.join(PATIENCE)
        assert not waiter._thread.is_alive()


def test_it_hints_once_each_time_it_is_armed(make):
    backend, hinted = Eager(), threading.Event()
    waiter = make(backend, hinted.set)
    for number in (1, 2):
        waiter.arm()
        assert hinted.wait(PATIENCE)
        hinted.clear()
        assert backend.waits == number
    assert not waiter._armed.is_set()


def test_work_that_is_not_to_be_had_does_not_make_it_spin(make):
    enough, hints = threading.Event(), []

    def hint():
        hints.append(time.monotonic())
        if len(hints) == 8:
            enough.set()
        waiter.arm()

    waiter = make(Eager(), hint, poll_interval=0.1)
    began = time.monotonic()
    waiter.arm()
    assert enough.wait(PATIENCE)
    assert time.monotonic() - began >= 0.005 + 0.01 + 0.02 + 0.04 + 0.08 + 0.1 + 0.1 + 0.1


@pytest.mark.parametrize("error", [OSError("away"), ValueError("theirs")], ids=str)
def test_errors_are_left_to_the_others_to_report(make, error):
    hinted = threading.Event()
    waiter = make(Eager(error), hinted.set, poll_interval=0.05)
    waiter.arm()
    assert hinted.wait(PATIENCE)
    hinted.clear()
    waiter.arm()
    assert hinted.wait(PATIENCE)


def test_a_wait_that_hangs_is_not_trusted_for_ever_and_ends_with_the_worker(make):
    backend = Hung()
    waiter = make(backend, lambda: None, poll_interval=0.05)
    waiter.arm()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < waiter.trusted_until:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    waiter.cut_if_hung()
    began = time.monotonic()
    waiter.end()
    assert time.monotonic() - began < PATIENCE / 2
