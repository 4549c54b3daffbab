"""Short transactions of our own, and the meaning of database errors.

Errors are classified by the codes of the drivers, never by the text of a message.
"""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import (
    Error,
    InterfaceError,
    OperationalError,
    connections,
    transaction,
)

from django_jobs.conf import get_settings
from django_jobs.db.timeouts import is_limited
from django_jobs.exceptions import TablesMissing
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")

TRIES = 6
_PAUSE_SECONDS = 0.02
READ_COMMITTED = "READ COMMITTED"

# serialization_failure, deadlock_detected
_POSTGRESQL_CONFLICTS = frozenset({"40001", "40P01"})
# ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK, ER_CHECKREAD (a row changed under the statement)
_MYSQL_CONFLICTS = frozenset({1205, 1213, 1020})
# undefined_table, undefined_column
_POSTGRESQL_MISSING = frozenset({"42P01", "42703"})
# ER_NO_SUCH_TABLE, ER_BAD_FIELD_ERROR
_MYSQL_MISSING = frozenset({1146, 1054})
_SQLITE_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# lock_not_available, query_canceled
_POSTGRESQL_GAVE_UP = frozenset({"55P03", "57014"})
# lock wait timeout; statement timeout (MariaDB's number and MySQL's); killed
_MYSQL_GAVE_UP = frozenset({1205, 1969, 3024, 1317})
# read_only_sql_transaction, insufficient_privilege
_POSTGRESQL_UNAVAILABLE = frozenset({"25006", "42501"})
# insufficient resources, operator intervention, system error
_POSTGRESQL_UNAVAILABLE_CLASSES = ("53", "57", "58")
# too many connections, disk full, out of memory, out of resources, table full, access denied
# (to a table), read-only, a read-only server, no such grant
_MYSQL_UNAVAILABLE = frozenset({1040, 1021, 1037, 1041, 1114, 1142, 1143, 1290, 1836, 1792, 1044})
# not let in: wrong password, unknown database, host blocked or not allowed, too many connections
# of this user (its own number and that of its account); a cluster's node that is not ready
_MYSQL_NO_ACCESS = frozenset({1045, 1049, 1129, 1130, 1203, 1226, 1047})
# Refused values that the driver reports as an OperationalError: incorrect string or value,
# SIGNAL, too big a packet, a CHECK constraint
_MYSQL_REFUSED = frozenset({1366, 1292, 1644, 1153, 3819, 4025})
# server not there, gone, lost during query, lost at a packet, killed, shutting down
_MYSQL_LOST = frozenset({2002, 2003, 2006, 2013, 2055, 1927, 1053, 4031, 0})


def in_transition(
    alias: str, work: Callable[[BaseDatabaseWrapper], T], *, sees_commits: bool = False
) -> T:
    """Run work in one transaction, and repeat it after a conflict.

    Inside a transaction of the caller it is a savepoint, and a conflict is raised to the caller,
    whose own changes are lost as well. ``sees_commits``: each statement has to see what was
    committed before it, whatever isolation level the site uses.
    """
    connection = connections[alias]
    if connection.in_atomic_block:
        with transaction.atomic(using=alias):
            return work(connection)

    def once(level: str | None) -> T:
        with _transition(connection, READ_COMMITTED if sees_commits else level):
            return work(connection)

    return _again_after_conflicts(connection, once)


def awaits_commit(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open that may be committed; one around a test never is."""
    return connection.in_atomic_block and not any(
        getattr(block, "_from_testcase", False) for block in connection.atomic_blocks
    )


def in_statement(alias: str, work: Callable[[BaseDatabaseWrapper], T]) -> T:
    """Run a single statement, which needs no transaction of its own: it is committed at once.

    Inside a transaction of the caller it belongs to that.
    """
    connection = connections[alias]
    if connection.in_atomic_block:
        return work(connection)

    def once(level: str | None) -> T:
        if level is None:
            return work(connection)
        with _transition(connection, level):
            return work(connection)

    return _again_after_conflicts(connection, once)


def in_reading(alias: str, work: Callable[[], T]) -> T:
    """Run read-only queries, which need no transaction."""
    return in_statement(alias, lambda _: work())


def _close_if_lost(connection: BaseDatabaseWrapper, error: Error) -> None:
    """Close a lost connection, as Django does between requests; a worker has no requests.

    Without testing the connection: PyMySQL would reconnect by itself, and without the settings
    of the session.
    """
    if is_connection_lost(error) and not connection.in_atomic_block:
        connection.close()


def _again_after_conflicts(connection: BaseDatabaseWrapper, once: Callable[[str | None], T]) -> T:
    """Try with the site's isolation level first, and after a conflict with READ COMMITTED.

    On PostgreSQL a conflict means that a stricter level is the default. Under that, claimers that
    share an index page may conflict at every try. The default cannot be seen beforehand.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            return once(None if tries_left == TRIES - 1 else READ_COMMITTED)
        except Error as error:
            # After a lock timeout another try would only wait for the lock again.
            waited = is_limited(connection) and gave_up(error)
            if not tries_left or waited or not is_conflict(error):
                _close_if_lost(connection, error)
                raise
        time.sleep(_PAUSE_SECONDS * random.random() * (TRIES - tries_left))  # noqa: S311 - jitter
    raise AssertionError("the last try returns or raises")  # pragma: no cover - unreachable


@contextmanager
def _transition(connection: Any, level: str | None) -> Iterator[None]:
    # The isolation level and the transaction mode are known only once connected.
    connection.ensure_connection()
    if connection.vendor == "mysql" and connection.isolation_level != "read committed":
        # Gap locks of the stricter levels would make claims wait for each other. Applies to
        # the next transaction only, which is ours.
        with connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {READ_COMMITTED}")
    with (
        _immediate(connection),
        _at_level(connection, level),
        transaction.atomic(using=connection.alias),
    ):
        try:
            yield
        except Error as error:
            # Otherwise Django would reconnect on its way out, and wait for a server that is away.
            if is_connection_lost(error):
                connection.close()
            raise


@contextmanager
def _immediate(connection: Any) -> Iterator[None]:
    """Let a SQLite transaction take its write lock at once, whatever the options say.

    A deferred transaction that reads and then writes fails if another one wrote in between,
    whatever the busy timeout is.
    """
    if connection.vendor != "sqlite":
        yield
        return
    configured = connection.transaction_mode
    connection.transaction_mode = "IMMEDIATE"
    try:
        yield
    finally:
        connection.transaction_mode = configured


@contextmanager
def _at_level(connection: Any, level: str | None) -> Iterator[None]:
    """Begin a transaction on PostgreSQL with an isolation level, for this BEGIN only."""
    if level is None or connection.vendor != "postgresql":
        yield
        return
    from django.db.backends.postgresql.psycopg_any import IsolationLevel  # noqa: PLC0415 - only where it is installed

    driver = connection.connection
    configured = driver.isolation_level
    driver.isolation_level = IsolationLevel[level.replace(" ", "_")]
    try:
        yield
    finally:
        if not driver.closed:
            driver.isolation_level = configured


def is_conflict(error: Error) -> bool:
    """Whether the statement lost against another transaction, so that a retry helps."""
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) in _POSTGRESQL_CONFLICTS:
        return True
    return _number(cause) in _MYSQL_CONFLICTS


def is_locked(error: Error) -> bool:
    """Whether another connection held SQLite's lock for longer than the busy timeout."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    return code & 0xFF in _SQLITE_LOCKED  # the higher bits give the detail


def gave_up(error: Error) -> bool:
    """Whether a statement was rolled back because it waited or ran for too long."""
    cause = error.__cause__
    return (
        _sqlstate(cause) in _POSTGRESQL_GAVE_UP
        or _number(cause) in _MYSQL_GAVE_UP
        or is_locked(error)
    )


def is_row_locked(error: Error) -> bool:
    """Whether a statement gave up because of some rows, and may succeed with others."""
    return gave_up(error) and not is_locked(error)


def is_unavailable(error: Error) -> bool:
    """Whether the database cannot be used at all, whatever the statement."""
    if is_connection_lost(error) or is_schema_missing(error):
        return True
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        answers = is_locked(error) or _is_unreadable(cause)
        return isinstance(cause, sqlite3.OperationalError) and not answers
    if gave_up(error):
        return False
    state = _sqlstate(cause) or ""
    return (
        state in _POSTGRESQL_UNAVAILABLE
        or state.startswith(_POSTGRESQL_UNAVAILABLE_CLASSES)
        or _number(cause) in _MYSQL_UNAVAILABLE | _MYSQL_NO_ACCESS
    )


def is_refusal(error: Error) -> bool:
    """Whether the database refuses the statement or its values, so that a retry does not help."""
    if not isinstance(error, OperationalError):
        return not (is_unavailable(error) or is_conflict(error))
    return _number(error.__cause__) in _MYSQL_REFUSED or _is_unreadable(error.__cause__)


def _is_unreadable(cause: BaseException | None) -> bool:
    """Whether SQLite's driver cannot read a value: text that is not UTF-8.

    Errors of SQLite itself have a code.
    """
    return isinstance(cause, sqlite3.OperationalError) and not hasattr(cause, "sqlite_errorcode")


def is_connection_lost(error: Error) -> bool:
    """Whether the connection broke, so that the server may have done the work unreported."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    cause = error.__cause__
    module = type(cause).__module__ or ""
    if module.startswith("psycopg"):
        state = _sqlstate(cause)
        return state is None or state.startswith(("08", "57P", "25P03", "25P04"))
    if module.startswith("sqlite3"):
        return False
    return isinstance(error, InterfaceError) or _number(cause) in _MYSQL_LOST


def is_schema_missing(error: BaseException) -> bool:
    """Whether the statement names a table or column that does not exist: migrate has to be run.

    SQLite has no code for that. It uses this one for every statement that it cannot prepare,
    and ours can always be prepared where the tables exist.
    """
    cause = error.__cause__
    if isinstance(error, TablesMissing) or _sqlstate(cause) in _POSTGRESQL_MISSING:
        return True
    if _number(cause) in _MYSQL_MISSING:
        return True
    return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR


@contextmanager
def naming_missing_tables(backend: str, database: str | None = None) -> Iterator[None]:
    """Raise TablesMissing for the error of a database that lacks our tables or columns.

    ``database``: its alias, if it is not the database of the backend.
    """
    try:
        yield
    except Error as error:
        if isinstance(error, TablesMissing) or not is_schema_missing(error):
            raise
        settings = get_settings()
        home = database or database_of(settings.backends[backend]) or job_databases(settings)[0]
        raise TablesMissing(home, str(error).strip()) from error


def _sqlstate(cause: BaseException | None) -> str | None:
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)


def _number(cause: BaseException | None) -> int | None:
    args = getattr(cause, "args", ())
    return args[0] if args and isinstance(args[0], int) else None
