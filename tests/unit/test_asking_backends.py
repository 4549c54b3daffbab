"""A backend that fails again and again is left alone by this process, per queue."""

import pytest

from django_jobs.backends import asking as module
from django_jobs.backends.asking import asking
from django_jobs.clock import to_microseconds
from django_jobs.exceptions import BackendUnavailable, EnqueueOutcomeUnknown, InvalidPayload
from django_jobs.telemetry import events

COOLDOWN = 60


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time that only the test moves."""
    module.forget()
    now = [0.0]
    monkeypatch.setattr(module, "_now", lambda: to_microseconds(now[0]))
    yield now
    module.forget()


@pytest.fixture
def told():
    told = []
    events.subscribe(told.append)
    yield told
    events.unsubscribe(told.append)


def fail(queue="mail", error=None, backend="redis"):
    error = error or OSError("gone")
    with pytest.raises(type(error)), asking(backend, queue):
        raise error


def refused(queue="mail", backend="redis"):
    try:
        with asking(backend, queue):
            return False
    except BackendUnavailable:
        return True


def test_five_errors_in_a_row_open_it_for_a_minute(clock, told):
    for _ in range(4):
        fail()
    assert told == []
    fail()
    (opened,) = told
    assert isinstance(opened, events.BreakerOpened)
    assert (opened.kind, opened.backend, opened.subject) == ("backend", "redis", "mail")
    assert (opened.failures, opened.seconds) == (5, 60)
    clock[0] = COOLDOWN - 1
    with (
        pytest.raises(BackendUnavailable, match=r"failed 5 times in a row.*for 1 s more"),
        asking("redis", "mail"),
    ):
        pytest.fail("nothing is asked while it cools down")


def test_other_queues_and_backends_are_asked_as_ever():
    for _ in range(5):
        fail()
    assert refused()
    assert not refused(queue="reports")
    assert not refused(backend="database")


def test_exactly_one_probe_and_its_success_closes_it(clock, told):
    for _ in range(5):
        fail()
    clock[0] = COOLDOWN
    with asking("redis", "mail"):
        assert all(refused() for _ in range(50))
    assert not refused()
    assert [type(event) for event in told] == [events.BreakerOpened, events.BreakerClosed]


def test_a_probe_that_fails_opens_it_anew(clock):
    for _ in range(5):
        fail()
    clock[0] = COOLDOWN
    fail()
    clock[0] = 2 * COOLDOWN - 1
    assert refused()
    clock[0] = 2 * COOLDOWN
    assert not refused()


def test_a_probe_that_is_stopped_leaves_room_for_another(clock):
    for _ in range(5):
        fail()
    clock[0] = COOLDOWN
    with pytest.raises(KeyboardInterrupt), asking("redis", "mail"):
        raise KeyboardInterrupt
    assert not refused()


def test_what_a_job_did_wrong_is_no_fault_of_the_backend():
    for _ in range(4):
        fail()
    fail(error=InvalidPayload("no JSON"))  # it was asked, and answered
    fail()
    assert not refused()


def test_an_answer_that_did_not_come_is_a_fault():
    for _ in range(5):
        fail(error=EnqueueOutcomeUnknown([], "lost"))
    assert refused()
