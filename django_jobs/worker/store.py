"""A worker's dealings with its store: patient in an outage, told once, never "empty"."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from django.db import Error, connections

from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Backend

T = TypeVar("T")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Store:
    """Calls a backend, and knows whether it answers."""

    def __init__(self, backend: Backend, stopped: Callable[[], bool]) -> None:
        self._backend = backend
        self._stopped = stopped
        self._lost_at: float | None = None
        self._pause = FIRST_PAUSE

    def call(self, work: Callable[[], T]) -> T | None:
        """The answer, or None after an outage's pause; the caller comes again."""
        try:
            answer = work()
        except (Error, OSError) as error:
            self._outage(error)
            return None
        self._back()
        return answer

    def _outage(self, error: BaseException) -> None:
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            events.emit(events.StoreLost(backend=self._backend.alias, error=error))
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()
        # Jittered, so that a fleet does not fall on a database that just came back.
        self._nap(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, hides nothing
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopped() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, FIRST_PAUSE))

    def _back(self) -> None:
        if self._lost_at is None:
            return
        lasted = time.monotonic() - self._lost_at
        self._lost_at, self._pause = None, FIRST_PAUSE
        events.emit(events.StoreFound(backend=self._backend.alias, seconds=lasted))
