"""Where connections are asked for: never in a process that only runs jobs, for it hears of them."""

import contextlib
import threading
from unittest import mock

import pytest
from django.db.backends.signals import connection_created
from django.db.backends.sqlite3.base import DatabaseWrapper

from django_jobs.execution import connections
from django_jobs.execution.attempt import Attempt
from django_jobs.execution.connections import clean_connections, keep_connections
from django_jobs.handlers.base import JobContext
from django_jobs.handlers.function import FunctionHandler


class Asked:
    """Stands for Django's handler of connections, of which none is open."""

    def __init__(self):
        self.times, self.those = 0, []

    def all(self, *, initialized_only):
        assert initialized_only
        self.times += 1
        return self.those


@pytest.fixture
def asked(monkeypatch):
    handler = Asked()
    monkeypatch.setattr(connections, "connections", handler)
    monkeypatch.setattr(connections, "_open", connections._OpenConnections())
    monkeypatch.setattr(connections._OpenConnections, "is_notified", False)
    monkeypatch.setattr(connections, "REFRESH_SECONDS", 3600.0)
    yield handler
    connection_created.disconnect(connections._note_opened)


@pytest.fixture
def make(tmp_path, django_db_blocker):
    """Makes connections that no handler of Django knows."""
    made = []

    def make(alias):
        rest = {"CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False, "TIME_ZONE": None, "OPTIONS": {}}
        made.append(DatabaseWrapper({**rest, "AUTOCOMMIT": True, "NAME": tmp_path / alias}, alias))
        return made[-1]

    with django_db_blocker.unblock():
        yield make
    for connection in made:
        connection.close()


@pytest.fixture
def connection(make):
    return make("beside")


def run(do=lambda: None):
    with clean_connections():
        do()


def test_elsewhere_they_are_asked_for_before_and_after_each_run(asked):
    run()
    run()
    assert asked.times == 4


def test_there_nobody_is_asked_again(asked):
    keep_connections()
    for _ in range(3):
        run()
    assert asked.times == 1


def test_what_a_run_opens_is_tidied_up_after_it_and_after_the_next(asked, connection):
    keep_connections()
    for _ in range(2):
        run(lambda: connection.set_autocommit(False))
        assert connection.get_autocommit()


def test_one_that_was_closed_is_let_go_when_another_opens(asked, connection, make):
    keep_connections()
    run(connection.connect)
    connection.close()
    other = make("other")
    run(other.connect)
    assert connections._open.connections == [other]
    run(connection.connect)
    assert connections._open.connections == [other, connection]


def test_one_that_was_closed_inside_a_transaction_is_kept_and_mended(asked, connection, make):
    keep_connections()

    def broken():
        connection.connect()
        connection.in_atomic_block = True
        connection.close()
        connection.connection = None
        make("other").connect()

    run(broken)
    assert not connection.in_atomic_block
    assert connection.get_autocommit()


@pytest.mark.parametrize("fails", [True, False])
def test_one_that_failed_as_it_opened_is_found(asked, connection, monkeypatch, fails):
    """Django keeps it, sends no signal, and would use it again and again."""
    keep_connections()

    def opens():
        with (
            mock.patch.object(connection, "init_connection_state", side_effect=OSError),
            contextlib.suppress(OSError),
        ):
            connection.connect()
        connection.connection.close()
        if fails:
            raise ValueError

    asked.those = [connection]
    handler = FunctionHandler("opens", opens, takes_context=False)
    context = JobContext(id="1", payload={"args": [], "kwargs": {}}, name="opens", queue="default")
    run(Attempt(handler=handler, context=context).run)
    assert (connection.connection is None) is fails
    monkeypatch.setattr(connections, "REFRESH_SECONDS", 0)  # a hidden error is found later
    run()
    assert connection.connection is None


def test_another_thread_asks_for_its_own(asked, connection):
    keep_connections()
    asked.those = [connection]
    connection.inc_thread_sharing()
    thread = threading.Thread(target=run, args=(lambda: connection.set_autocommit(False),))
    thread.start()
    thread.join()
    assert connection.get_autocommit()
    assert asked.times == 2
