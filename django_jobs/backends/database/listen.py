"""Hints of new jobs: LISTEN on a PostgreSQL connection of its own, or SQLite's change counter.

Hints are optional. Without them (another driver, a pooler in between, no free connection) a
worker polls as often as its poll interval says, and everything else is the same.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from selectors import EVENT_READ
from typing import TYPE_CHECKING, Any

from django_jobs.backends.database.notify import CHANNEL, payload
from django_jobs.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence
    from selectors import DefaultSelector

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
HELD_LONG_ENOUGH = 10.0

# Notices a network that drops packets, so that hints are missed no longer than this.
_ALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "connect_timeout": 5,
}


class Listener:
    """Receives hints about the queues of a backend. Used by one thread."""

    def __init__(self, connection: Any, selector: DefaultSelector, backend: str) -> None:
        self._django = connection
        # The driver that Django has loaded: sites on another database do not load psycopg.
        self._driver = connection.Database
        self._selector = selector
        self._backend = backend
        self._own: Any = None
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._try_at = 0.0
        if self._driver.__name__ != "psycopg":  # psycopg2 cannot be waited on like this
            self._try_at = float("inf")

    @property
    def listens(self) -> bool:
        return self._own is not None

    def tries_in(self) -> float:
        """Seconds until the next attempt to listen; infinite while it listens, or if it cannot."""
        if self._own is not None:
            return float("inf")
        return max(self._try_at - time.monotonic(), 0.0)

    def begins(self) -> bool:
        """Begin to listen if an attempt is due; whether it has just begun."""
        now = time.monotonic()
        if self._own is not None or now < self._try_at:
            return False
        self._try_at = now + self._backoff.next()
        with contextlib.suppress(self._driver.Error, OSError):
            self._listen()
        return self._own is not None

    def _listen(self) -> None:
        params = {**_ALIVE, **self._django.get_connection_params()}
        own = self._driver.connect(**params, autocommit=True)
        try:
            channel, server_pid = own.execute(f"SELECT {CHANNEL}, pg_backend_pid()").fetchone()
            if own.info.backend_pid != server_pid:
                # A pooler answers. It lends its sessions to several clients: a listener on one of
                # them gets no notifications, and another client gets ours.
                self._try_at = float("inf")
                own.close()
                return
            own.execute(f'LISTEN "{channel}"')
        except BaseException:
            own.close()
            raise
        self._own = own
        self._since = time.monotonic()
        self._socket = own.fileno()
        self._selector.register(self._socket, EVENT_READ)

    def has_hint(self, queues: Sequence[str] | None) -> bool:
        """Whether one of the received hints is about these queues, or about any if None."""
        if self._own is None:
            return False
        payloads = set()
        try:
            self._own.pgconn.consume_input()
            while (notification := self._own.pgconn.notifies()) is not None:
                payloads.add(notification.extra.decode())
        except (self._driver.Error, OSError):
            self.close()
        if queues is None:
            return any(text.startswith(payload(self._backend, "")) for text in payloads)
        return any(payload(self._backend, queue) in payloads for queue in queues)

    def close(self) -> None:
        """Listen no more, for now."""
        own, self._own = self._own, None
        if own is None:
            return
        if time.monotonic() - self._since > HELD_LONG_ENOUGH:
            self._backoff.reset()
            self._try_at = 0.0
        self._selector.unregister(self._socket)
        own.close()


# ---------------------------------------------------------------- SQLite's change counter

EVERY_SECONDS = 0.01


class Changes:
    """Whether another connection has committed to the file since ``begin``. Cheap to ask."""

    every = EVERY_SECONDS

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._version: int | None = None

    def begin(self) -> None:
        """Count changes from now on. Call it before a poll, so that no change is missed."""
        self._connection.ensure_connection()
        self._version = self._read()

    def seen(self) -> bool:
        """Whether there was a change, or may have been: then a poll tells."""
        version = self._read()
        return version is None or version != self._version

    def _read(self) -> int | None:
        raw = self._connection.connection
        if raw is None:
            return None
        try:
            # Without Django's cursor, which would do ten times the work a hundred times a second.
            (version,) = raw.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return None
        return int(version)


def can_see_others(connection: Any) -> bool:
    """Whether commits of other connections can be seen on this one."""
    return not (connection.in_atomic_block or connection.is_in_memory_db())
