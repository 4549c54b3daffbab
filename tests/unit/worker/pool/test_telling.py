"""What happened is said in order, soon, and never at the cost of who says it."""

import logging
import threading

import pytest

from django_jobs.telemetry import events, logs
from django_jobs.worker.pool import log_thread
from django_jobs.worker.pool.log_thread import Teller

PATIENCE_SECONDS = 10.0


@pytest.fixture
def teller():
    teller = Teller()
    teller.start()
    yield teller
    teller.end(PATIENCE_SECONDS)


@pytest.fixture
def told(caplog):
    """The keys and numbers of what was written, and by which threads."""
    caplog.set_level(logging.INFO, "django_jobs")

    def told():
        records = caplog.records
        return [record.count for record in records], {record.threadName for record in records}

    return told


def happened(number):
    return events.Reaped(backend="database", count=number)


def test_records_are_written_in_their_order_by_another_thread(teller, told):
    with logs.through(teller.say):
        for number in range(100):
            logs.write(happened(number))
    assert teller.end(PATIENCE_SECONDS)
    assert told() == (list(range(100)), {"django_jobs-teller"})


def test_outside_of_the_block_records_are_written_at_once(teller, told):
    with logs.through(teller.say):
        pass
    logs.write(happened(1))
    assert told() == ([1], {threading.current_thread().name})


def test_what_fails_to_be_said_stops_nothing(teller, told):
    teller.say(lambda: 1 / 0)
    with logs.through(teller.say):
        logs.write(happened(1))
    assert teller.end(PATIENCE_SECONDS)
    assert told()[0] == [1]


def test_what_is_too_much_is_dropped_and_counted(teller, told, monkeypatch):
    monkeypatch.setattr(log_thread, "MOST_UNSAID", 3)
    begun, gate = threading.Event(), threading.Event()
    teller.say(lambda: (begun.set(), gate.wait(PATIENCE_SECONDS)))
    assert begun.wait(PATIENCE_SECONDS)
    with logs.through(teller.say):
        for number in (10, 11, 12, 13, 14):
            logs.write(happened(number))
    assert not teller.end(0)
    gate.set()
    assert teller.end(PATIENCE_SECONDS)
    assert told()[0] == [10, 11, 12, 2]
