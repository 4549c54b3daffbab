"""process_once() beside somebody who keeps SQLite's one lock for longer than one may wait."""

import sqlite3
import threading

import pytest
from django.db import OperationalError, connection, transaction

from django_jobs import job
from django_jobs.exceptions import TablesMissing
from django_jobs.models import JobResult
from django_jobs.worker import build, process_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.only_on("sqlite")]
BUSY_MILLISECONDS = 20


@job(key="locked.note")
def note():
    return "noted"


@pytest.fixture
def locked():
    """A lock on the database, of another connection; calling it lets go."""
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")
    other = sqlite3.connect(
        connection.settings_dict["NAME"], isolation_level=None, check_same_thread=False
    )
    note.enqueue()
    other.execute("BEGIN IMMEDIATE")

    def let_go():
        if other.in_transaction:
            other.execute("ROLLBACK")

    yield let_go
    let_go()
    other.close()
    connection.close()


@pytest.fixture
def refusals(monkeypatch):
    """How often the lock was refused, and what is done at each refusal."""
    seen, then = [], {}

    def is_locked(error, judge=build.is_locked):
        found = judge(error)
        seen.append(found)
        then.get(len(seen), lambda: None)()
        return found

    monkeypatch.setattr(build, "is_locked", is_locked)
    return seen, then


def test_it_asks_again_until_the_lock_is_free(locked, refusals):
    seen, then = refusals
    then[3] = lambda: threading.Timer(0.05, locked).start()
    assert process_once().status == "acked"
    assert len(seen) >= 3
    assert all(seen)
    assert JobResult.objects.get().status == "succeeded"


def test_it_does_not_ask_for_ever(locked, refusals, monkeypatch):
    monkeypatch.setattr(build, "LOCKED_PATIENCE", 0.1)
    with pytest.raises(OperationalError, match="locked"):
        process_once()
    assert len(refusals[0]) > 1
    locked()
    assert process_once().status == "acked"


def test_in_a_transaction_of_the_caller_it_is_the_callers(locked, refusals, monkeypatch):
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "transaction_mode", "DEFERRED")
    connection.transaction_mode = "DEFERRED"
    with pytest.raises(OperationalError, match="locked"), transaction.atomic():
        process_once()
    assert len(refusals[0]) == 1


def test_another_error_is_told_at_once(refusals):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_jobs_job RENAME TO away")
    try:
        with pytest.raises(TablesMissing, match="no such table"):
            process_once("default")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO django_jobs_job")
    assert refusals[0] == [False]
