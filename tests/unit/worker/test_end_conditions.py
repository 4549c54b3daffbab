"""When a worker is to end, whichever kind of worker it is."""

import signal
from types import SimpleNamespace

import pytest

from django_jobs.worker import stop as module
from django_jobs.worker.stop import (
    DRAINING,
    EndConditions,
    Stop,
    WorkerLimits,
)


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_without_limits_it_goes_on(clock):
    conditions = EndConditions(Stop(), WorkerLimits())
    clock.now += 1e9
    assert conditions.reason(10**9, draining=False) == ""
    assert conditions.seconds_left() == float("inf")


@pytest.mark.parametrize(
    ("number", "why"), [(None, "asked to stop"), (signal.SIGTERM, "a signal asked for it")]
)
def test_it_ends_when_it_is_asked_to(number, why):
    stop = Stop()
    stop.signal_number = number
    stop.ask()
    conditions = EndConditions(stop, WorkerLimits(max_jobs=1))
    assert conditions.reason(1, draining=True) == why


def test_it_ends_when_an_operator_drains_it():
    conditions = EndConditions(Stop(), WorkerLimits(max_jobs=1))
    assert conditions.reason(1, draining=True) == DRAINING


def test_it_ends_after_so_many_jobs():
    conditions = EndConditions(Stop(), WorkerLimits(max_jobs=3))
    assert conditions.reason(2, draining=False) == ""
    assert conditions.reason(3, draining=False) == "3 jobs were processed"


def test_it_ends_after_so_many_seconds_from_its_beginning(clock):
    conditions = EndConditions(Stop(), WorkerLimits(max_seconds=2.5))
    clock.now += 2.0
    assert conditions.seconds_left() == 0.5
    conditions.begin()
    clock.now += 2.0
    assert conditions.reason(0, draining=False) == ""
    clock.now += 0.5
    assert conditions.reason(0, draining=False) == "2.5 seconds are over"
