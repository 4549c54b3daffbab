"""A wait is over when a job comes or is due; each database is told of it in its own way."""

import threading
import time
from contextlib import contextmanager

import pytest
from django.db import connection, connections

from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.database.wait import FIRST_LOOK_AFTER_HINT
from django_jobs.testing.factories import make_outgoing

pytestmark = pytest.mark.django_db(transaction=True)

ENDLESS = 60.0
SOON = 15.0
TOLD = pytest.mark.only_on("postgres", "sqlite")


class Waiting:
    """A thread that waits, and what one has to know of it."""

    def __init__(self, backend, queues, timeout):
        self.backend, self.queues, self.timeout = backend, queues, timeout
        self.looked = threading.Event()
        self.looks, self.answer = [], None
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        def listen(execute, sql, params, many, context):
            answer = execute(sql, params, many, context)
            if "lease_expires" in sql:
                self.looks.append(time.monotonic())
                self.looked.set()
            return answer

        try:
            with connections["default"].execute_wrapper(listen):
                self.answer = self.backend.wait(self.queues, self.timeout)
        finally:
            connections.close_all()

    def is_over(self, patience=SOON):
        """The answer; it must not take longer than this from now."""
        self.thread.join(patience)
        assert not self.thread.is_alive(), "the wait went on"
        return self.answer


@pytest.fixture
def backend():
    backend = DatabaseBackend("database", {})
    yield backend
    backend.stop_waiting()


@pytest.fixture
def silent():
    """What enqueues without a hint, as another release or plain SQL would."""
    return DatabaseBackend("database", {"NOTIFY": False})


@contextmanager
def waiting(backend, queues=None, timeout=ENDLESS):
    one = Waiting(backend, queues, timeout)
    one.thread.start()
    try:
        assert one.looked.wait(SOON)
        if connection.vendor == "postgresql" and backend._notifies:
            until(lambda: listeners() and len(one.looks) > 1)
        yield one
    finally:
        backend.stop_waiting()
        one.thread.join(SOON)


def until(condition):
    deadline = time.monotonic() + SOON
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
    return found


def listeners():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        return [pid for (pid,) in cursor.fetchall()]


def put(backend, queue="default", **terms):
    (stored,) = backend.enqueue([make_outgoing(queue, backend="database", **terms)])
    return stored.id


@TOLD
@pytest.mark.parametrize("queues", [None, ["default"], ["other", "default"]])
def test_a_job_that_comes_ends_the_wait(backend, queues):
    with waiting(backend, queues) as one:
        job_id = put(backend)
        assert one.is_over() is True
    assert [lease.id for lease in backend.fetch(["default"], 1, 30.0)] == [job_id]


def test_a_job_that_becomes_due_ends_the_wait_and_not_before(backend):
    job_id = put(backend, delay=1.5)
    with waiting(backend, ["default"]) as one:
        assert one.is_over() is True
    (lease,) = backend.fetch(["default"], 1, 30.0)
    assert lease.id == job_id
    assert 1 <= len(one.looks) < 20, "it looked again and again instead of sleeping"


@TOLD
def test_a_job_that_is_due_before_the_one_it_sleeps_for_ends_the_wait(backend):
    put(backend, delay=40)
    with waiting(backend) as one:
        put(backend, delay=0.5)
        assert one.is_over() is True


def test_what_goes_on_in_other_queues_does_not(backend):
    with waiting(backend, ["mine"], timeout=1.0) as one:
        put(backend, "theirs")
        assert one.is_over() is False


def test_a_stopped_wait_is_over_at_once_and_leaves_nothing_open(backend):
    with waiting(backend) as one:
        backend.stop_waiting()
        assert one.is_over() is False
    if connection.vendor == "postgresql":
        until(lambda: not listeners())


@pytest.mark.only_on("postgres")
class TestListening:
    def test_a_listener_that_was_killed_comes_back(self, backend):
        with waiting(backend) as one:
            (pid,) = listeners()
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            until(lambda: listeners() not in ([], [pid]))
            assert one.thread.is_alive()
            put(backend)
            assert one.is_over() is True

    def test_what_came_without_a_hint_while_nobody_listened_is_seen(self, backend, silent):
        with waiting(backend) as one:
            (pid,) = listeners()
            put(silent, delay=1.0)
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
            assert one.is_over() is True

    def test_a_hint_left_out_so_shortly_after_another_is_made_up_for(self, backend, silent):
        """The worker looks again by itself; see hints.py for why one may be left out."""
        with waiting(backend) as one:
            put(backend)
            assert one.is_over() is True
        backend.ack(backend.fetch(["default"], 1, 30.0))
        first = threading.Event()

        def twice(execute, sql, params, many, context):
            answer = execute(sql, params, many, context)
            if "lease_expires" in sql and not first.is_set():
                first.set()
                late = threading.Thread(target=lambda: (put(silent), connections.close_all()))
                late.start()
                late.join()
            return answer

        backend.wait(None, 0.5)  # the thread of this test begins to listen
        put(backend)
        assert backend.wait(None, ENDLESS)
        backend.ack(backend.fetch(["default"], 1, 30.0))
        began = time.monotonic()
        with connection.execute_wrapper(twice):
            while not backend.wait(None, ENDLESS):
                pass
        assert len(backend.fetch(["default"], 1, 30.0)) == 1
        assert time.monotonic() - began < SOON
        assert FIRST_LOOK_AFTER_HINT < SOON

    def test_without_notify_nobody_listens(self, silent):
        with waiting(silent, timeout=1.0) as one:
            assert one.is_over() is False
            assert listeners() == []

    def test_who_listens_looks_less_often(self, backend, silent):
        backend.wait(None, 0.3)
        silent.wait(None, 0.3)
        assert (backend.look_every(1.0), silent.look_every(1.0)) == (2.0, 1.0)


@pytest.mark.only_on("sqlite")
def test_a_change_that_is_no_job_does_not_end_the_wait(backend):
    with waiting(backend, timeout=1.0) as one:
        put(backend, delay=3600)
        assert one.is_over() is False
    assert len(one.looks) > 1
