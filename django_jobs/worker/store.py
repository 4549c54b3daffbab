"""A worker's dealings with its store: patient in an outage, told once, never "empty"."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from django.db import Error, connections

from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 3.0


class Outage:
    """Whether a store answers. Told once when it stops to, and once when it does again."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._began_at: float | None = None

    def begins(self, error: BaseException) -> None:
        """The store did not answer."""
        if self._began_at is None:
            self._began_at = time.monotonic()
            events.emit(events.StoreLost(backend=self._backend, error=error))

    def ends(self) -> None:
        """The store answered."""
        if self._began_at is None:
            return
        lasted, self._began_at = time.monotonic() - self._began_at, None
        events.emit(events.StoreFound(backend=self._backend, seconds=lasted))


class Store:
    """Calls a backend, and waits when it does not answer."""

    def __init__(self, outage: Outage, stopped: Callable[[], bool]) -> None:
        self._outage = outage
        self._stopped = stopped
        self._pause = FIRST_PAUSE

    def call(self, work: Callable[[], T], *, proves: bool = True) -> T | None:
        """The answer, or None after an outage's pause; the caller comes again.

        ``proves``: the work asks the store in any case, so that its success ends an outage.
        """
        began_at = time.monotonic()
        try:
            answer = work()
        except (Error, OSError) as error:
            self._outage.begins(error)
            close_idle_connections()
            # Jittered, so that a fleet does not fall on a database that just came back. What
            # a call that hung has taken is part of the pause.
            pause = max(self._pause - (time.monotonic() - began_at), FIRST_PAUSE)
            self._nap(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, hides nothing
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            return None
        if proves:
            self._pause = FIRST_PAUSE
            self._outage.ends()
        return answer

    def _nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopped() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, FIRST_PAUSE))


def close_idle_connections() -> None:
    """Let the next statement of every connection that is in no transaction find a new one."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
