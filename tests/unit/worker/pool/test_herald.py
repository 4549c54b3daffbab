"""The parent's end of the process that sends signals, where nothing can be sent."""

import selectors
import socket

import pytest

from django_jobs.telemetry import events
from django_jobs.worker.pool.forkserver import Nursery
from django_jobs.worker.pool.side_processes import MOST_FAILURES, MOST_WAITING, Herald

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
def herald():
    """Of a nursery that has ended."""
    ours, theirs = socket.socketpair()
    theirs.close()
    nursery = Nursery(ours, -1, lambda: None)
    with selectors.DefaultSelector() as selector:
        yield Herald(nursery, SLOT, selector)
    ours.close()


def test_too_many_that_wait_are_not_kept(herald, lost):
    for number in range(MOST_WAITING + 2):
        herald.tell("job_dead", {"job_id": str(number)})
    assert [event.about for event in lost] == [str(MOST_WAITING), str(MOST_WAITING + 1)]
    assert not herald.is_over()


def test_when_no_process_can_be_started_it_gives_up(herald, lost):
    herald.tell("job_dead", {"job_id": "1"})
    for _ in range(MOST_FAILURES):
        assert not lost
        herald.step()
    assert [(event.about, event.why) for event in lost] == [
        ("1", "no process could be started to tell it")
    ]
    assert herald.is_over()


def test_news_about_others_are_not_for_it(herald):
    assert not herald.hears("born", SLOT + 1, 4711)
    assert not herald.hears("failed", SLOT + 1, "no memory")
    assert not herald.hears("ended", 4711, 0)


def test_what_was_not_told_when_the_worker_ends_is_said_to_be_lost(herald, lost):
    herald.tell("job_crashed", {"job_id": "1"})
    herald.close()
    assert [(event.signal, event.about) for event in lost] == [("job_crashed", "1")]
