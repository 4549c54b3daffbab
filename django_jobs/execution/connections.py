"""Database connections between attempts: what one handler broke must not hurt the next."""

from __future__ import annotations

import select
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from django.db import Error, connections, transaction
from django.db.backends.signals import connection_created

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType


REFRESH_SECONDS = 1.0


def clean_connections(*, lent: bool = False) -> AbstractContextManager[None]:
    """Fresh or healthy connections at the start, and no transaction left behind at the end.

    After a run that raised, every connection is closed: what the run may have left in its
    session (locks, temporary tables, settings, half a query) ends with it.

    A connection with a transaction open at the start belongs to the caller (a test case, a
    view that uses the sync backend): it stays open, and what is done to it inside the
    block is undone where it would break that transaction. ``lent``: all connections are the
    caller's, and may hold what the caller needs. They outlive an ordinary exception.
    """
    return _CleanLent() if lent else _Clean()


def keep_connections() -> None:
    """Track connections by signal as they open, in a process that only runs jobs.

    Asking Django for all connections twice per job would cost more than all the rest here.
    """
    _open.refresh()
    connection_created.connect(_note_opened)
    _OpenConnections.is_notified = True


def doubt_connections(error: BaseException) -> None:
    """Tell the block around this run that the run raised, which its outcome may not show."""
    _open.raised = type(error)


class _OpenConnections(threading.local):
    """The connections that a thread has opened; closed ones stay until it opens another."""

    is_notified = False
    raised: type[BaseException] | None = None
    """The exception of a run whose block has not ended yet."""

    def __init__(self) -> None:
        self.connections: Sequence[Any] = ()
        self.refreshed_at = float("-inf")

    def at_start(self) -> Sequence[Any]:
        if not self.is_notified or time.monotonic() - self.refreshed_at > REFRESH_SECONDS:
            self.refresh()
        return self.connections

    def at_end(self) -> Sequence[Any]:
        if not self.is_notified:
            self.refresh()
        return self.connections

    def after_failure(self) -> Sequence[Any]:
        """Ask again: Django keeps a connection that failed while opening and sends no signal."""
        self.raised = None
        self.refresh()
        return self.connections

    def refresh(self) -> None:
        self.connections = connections.all(initialized_only=True)
        self.refreshed_at = time.monotonic()


_open = _OpenConnections()


def _note_opened(connection: Any, **_: Any) -> None:
    others = [
        other for other in _open.connections if other is not connection and not _is_idle(other)
    ]
    _open.connections = [*others, connection]


def _is_idle(connection: Any) -> bool:
    """Whether there is nothing to clean up; if it opens again, a signal is sent again."""
    return connection.connection is None and not connection.in_atomic_block


class _Clean:
    """The block of one attempt; usually there is little to do."""

    lent = False

    def __enter__(self) -> None:
        self._foreign: dict[str, Any] = {}
        self._savepoints: ExitStack | None = None
        for connection in _open.at_start():
            connection.queries_log.clear()  # what Django does at the start of a request
            if connection.in_atomic_block:
                self._foreign[connection.alias] = connection
            else:
                _close_if_broken(connection)
        if self._foreign:
            with ExitStack() as savepoints:
                for connection in self._foreign.values():
                    savepoints.enter_context(_savepoint(connection))
                self._savepoints = savepoints.pop_all()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raised = kind or _open.raised
        try:
            if raised is None:
                for connection in _open.at_end():
                    if connection.alias not in self._foreign:
                        clean_up(connection)
            else:
                # A BaseException may come out of the middle of a query.
                closes = not self.lent or not issubclass(raised, Exception)
                for connection in _open.after_failure():
                    if connection.alias not in self._foreign:
                        clean_up(connection, closes=closes)
        finally:
            if self._savepoints is not None:
                self._savepoints.__exit__(kind, error, trace)


class _CleanLent(_Clean):
    lent = True


@contextmanager
def _savepoint(connection: Any) -> Iterator[None]:
    """Keep the writes of the block, unless it leaves the transaction unusable."""
    atomic = transaction.atomic(using=connection.alias)
    atomic.__enter__()
    depth, blocks = len(connection.savepoint_ids), len(connection.atomic_blocks)
    try:
        yield
    finally:
        if len(connection.atomic_blocks) > blocks:  # blocks that were entered and never left
            del connection.savepoint_ids[depth:], connection.atomic_blocks[blocks:]
            connection.needs_rollback = True
        with suppress(Error):  # Django has gone back to the savepoint by then
            atomic.__exit__(None, None, None)


def clean_up(connection: Any, *, closes: bool = False) -> None:
    """Clean a connection for the next run; ``closes`` closes it."""
    if _is_idle(connection):
        return
    if closes and getattr(connection, "pool", None) is not None:
        # Django puts it back as it is; the pool replaces it if it is closed.
        with suppress(Exception):  # the driver's own, which has no name here
            connection.connection.close()
    if connection.in_atomic_block or not connection.autocommit:
        # A transaction the handler left open is rolled back with its connection. A SQLite
        # database in memory is not closed, so roll back explicitly.
        with suppress(Exception):
            connection.connection.rollback()
        _close(connection)
        with suppress(Error):  # the server may be away; the next job tries again
            connection.connect()
    elif closes:
        _close(connection)  # which Django does not do to a SQLite database in memory
    else:
        _close_if_broken(connection)


def _close_if_broken(connection: Any) -> None:
    """Do what Django does at the end of a request, but keep sound connections open.

    No query tests a broken one: PyMySQL would reconnect by itself, without the settings of the
    session. CONN_MAX_AGE is honoured where it is not 0: a worker
    has no requests, and a connection for each job would cost more than most jobs.
    """
    if connection.connection is None:
        return
    connection.health_check_done = False
    aged = connection.settings_dict["CONN_MAX_AGE"] and connection.close_at is not None
    over = aged and time.monotonic() >= connection.close_at
    if connection.errors_occurred or over or _is_closed(connection) or _is_disconnected(connection):
        _close(connection)


def _close(connection: Any) -> None:
    """Close it, even if it is closed already, which is an error in PyMySQL."""
    with suppress(Error):
        connection.close()


def _is_closed(connection: Any) -> bool:
    """Whether the driver's connection was closed without Django noticing."""
    driver = connection.connection
    if connection.vendor == "sqlite":
        try:
            return bool(driver.total_changes < 0)
        except Exception:  # noqa: BLE001 - the driver's own, which has no name here
            return True
    return bool(getattr(driver, "closed", False)) or not getattr(driver, "open", True)


def _is_disconnected(connection: Any) -> bool:
    """Whether the server closed an idle connection.

    This asks the operating system only: a query would cost every job a round trip.
    """
    descriptor = None if connection.vendor == "sqlite" else descriptor_of(connection)
    if descriptor is None or not hasattr(select, "POLLRDHUP"):
        return False
    look = select.poll()
    look.register(descriptor, select.POLLRDHUP)
    return bool(look.poll(0))


def descriptor_of(connection: Any) -> int | None:
    """The file descriptor of a Django connection's socket; None if it has none."""
    driver: Any = getattr(connection, "connection", None)
    with suppress(Exception):  # it may be closed at this very moment
        end: Any = driver if hasattr(driver, "fileno") else driver._sock  # noqa: SLF001 - PyMySQL has no public way
        number = int(end.fileno())
        return number if number >= 0 else None
    return None
