"""What happened is said in order, soon, and never at the cost of who says it."""

import logging
import threading

import pytest

from django_jobs.telemetry import events, logs
from django_jobs.worker.pool import log_thread
from django_jobs.worker.pool.log_thread import LogThread

PATIENCE_SECONDS = 10.0


@pytest.fixture
def thread():
    thread = LogThread()
    thread.start()
    yield thread
    thread.end(PATIENCE_SECONDS)


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


def test_records_are_written_in_their_order_by_another_thread(thread, told):
    with logs.through(thread.submit):
        for number in range(100):
            logs.write(happened(number))
    assert thread.end(PATIENCE_SECONDS)
    assert told() == (list(range(100)), {"django_jobs-log"})


def test_outside_of_the_block_records_are_written_at_once(thread, told):
    with logs.through(thread.submit):
        pass
    logs.write(happened(1))
    assert told() == ([1], {threading.current_thread().name})


def test_what_fails_to_be_said_stops_nothing(thread, told):
    thread.submit(lambda: 1 / 0)
    with logs.through(thread.submit):
        logs.write(happened(1))
    assert thread.end(PATIENCE_SECONDS)
    assert told()[0] == [1]


def test_what_is_too_much_is_dropped_and_counted(thread, told, monkeypatch):
    monkeypatch.setattr(log_thread, "MOST_WAITING", 3)
    begun, gate = threading.Event(), threading.Event()
    thread.submit(lambda: (begun.set(), gate.wait(PATIENCE_SECONDS)))
    assert begun.wait(PATIENCE_SECONDS)
    with logs.through(thread.submit):
        for number in (10, 11, 12, 13, 14):
            logs.write(happened(number))
    assert not thread.end(0)
    gate.set()
    assert thread.end(PATIENCE_SECONDS)
    assert told()[0] == [10, 11, 12, 2]
