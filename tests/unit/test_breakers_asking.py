"""A backend that fails again and again is left alone by this process, per queue."""

import os
import socket
from contextlib import closing, contextmanager

import pytest

from django_jobs import enqueue_many, job
from django_jobs.backends import breakers as module
from django_jobs.backends.breakers import asking
from django_jobs.clock import to_microseconds
from django_jobs.exceptions import (
    BackendUnavailable,
    DuplicateJob,
    EnqueueOutcomeUnknown,
    InvalidPayload,
    SettingsError,
    StoreUnavailable,
)
from django_jobs.telemetry import events

COOLDOWN = 60


@job(key="asking.note", queue="mail")
def note(word):
    return word


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
    error = error or StoreUnavailable("gone")
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


@contextmanager
def refusing_port():
    """A port on which nothing listens: every connection is refused."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def swallowing_port():
    """A port whose queue of connections is full: no connection is ever made or refused."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        held.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(held.getsockname())
        yield held.getsockname()[1]
        for filler in fillers:
            filler.close()


@pytest.fixture
def redis_at(settings):
    def configure(port):
        url = f"redis://127.0.0.1:{port}/0"
        settings.DJANGO_JOBS = {
            "BACKENDS": {
                "redis": {
                    "BACKEND": "django_jobs.backends.redis.RedisBackend",
                    "OPTIONS": {"URL": url, "TIMEOUT": 0.2},
                }
            },
            "DEFAULT_BACKEND": "redis",
            "CIRCUIT_BREAKER": {"THRESHOLD": 2, "COOLDOWN": COOLDOWN},
        }

    return configure


@pytest.mark.parametrize("port", [refusing_port, swallowing_port])
def test_a_broker_that_cannot_be_reached_opens_it(redis_at, port, clock, told):
    with port() as number:
        redis_at(number)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                note.enqueue("a")
        for _ in range(3):
            with pytest.raises(BackendUnavailable):
                note.enqueue("a")
        clock[0] = COOLDOWN
        with pytest.raises(StoreUnavailable):  # the probe
            note.enqueue("a")
        with pytest.raises(BackendUnavailable):
            note.enqueue("a")
    assert [type(event) for event in told] == [events.BreakerOpened, events.BreakerOpened]


def test_several_queues_that_cannot_be_reached_are_counted_each(redis_at):
    jobs = [note.prepare("a"), note.using(queue="reports").prepare("b")]
    with refusing_port() as number:
        redis_at(number)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                enqueue_many(jobs)
    assert refused("mail")
    assert refused("reports")


def test_the_refusal_of_one_queue_never_closes_that_of_another(redis_at, clock):
    mail, reports = note, note.using(queue="reports")
    with refusing_port() as number:
        redis_at(number)
        for queue, at in ((mail, 0), (reports, 30)):
            clock[0] = at
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    queue.enqueue("a")
        clock[0] = COOLDOWN  # "mail" may be tried again, "reports" not yet
        with pytest.raises(BackendUnavailable, match="reports"):
            enqueue_many([mail.prepare("a"), reports.prepare("b")])
        with pytest.raises(StoreUnavailable):  # the place of the probe is free again
            mail.enqueue("a")
        with pytest.raises(BackendUnavailable, match="mail"):
            mail.enqueue("a")


def test_what_a_job_did_wrong_counts_neither_for_nor_against_the_backend():
    for error in (InvalidPayload("no JSON"), SettingsError("no such queue")):
        for _ in range(4):
            fail()
        fail(error=error)  # the backend may not have been asked
        fail()
        assert refused()
        module.forget()


def test_a_probe_that_ends_with_a_fault_of_the_job_leaves_room_for_another(clock):
    for _ in range(5):
        fail()
    clock[0] = COOLDOWN
    fail(error=InvalidPayload("too large"))
    with asking("redis", "mail"):
        assert refused()
    assert not refused()


def test_a_key_that_is_held_is_an_answer_of_the_backend(clock):
    for _ in range(5):
        fail()
    clock[0] = COOLDOWN
    fail(error=DuplicateJob("k", "an id"))
    assert not refused()
    for _ in range(4):
        fail()
    assert not refused()


def test_what_was_under_way_when_it_opened_neither_closes_nor_prolongs_it(clock):
    slow = asking("redis", "mail")
    slow.__enter__()
    with asking("redis", "mail"):
        for _ in range(5):
            fail()
    assert refused()  # though what began before has succeeded
    clock[0] = COOLDOWN - 1
    slow.__exit__(StoreUnavailable, StoreUnavailable("late"), None)
    clock[0] = COOLDOWN
    assert not refused()


@pytest.mark.parametrize(
    "error", [EnqueueOutcomeUnknown([], "lost"), StoreUnavailable("OOM"), OSError("gone")]
)
def test_an_answer_that_did_not_come_is_a_fault(error):
    for _ in range(5):
        fail(error=error)
    assert refused()


def test_a_forked_process_does_not_wait_for_a_probe_of_its_parents(settings, clock):
    settings.DJANGO_JOBS = {"CIRCUIT_BREAKER": {"THRESHOLD": 1, "COOLDOWN": COOLDOWN}}
    fail()
    clock[0] += COOLDOWN
    with asking("redis", "mail"):
        assert refused()
        if not (child := os.fork()):
            os._exit(int(refused()))
        assert os.waitpid(child, 0)[1] == 0
        assert refused()
    assert not refused()
