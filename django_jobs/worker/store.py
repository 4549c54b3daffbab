"""A worker's dealings with its store: patient in an outage, told once, never "empty"."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from django.db import Error, connections

from django_jobs.backends.circuit import CLOSED
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 3.0


class Outage:
    """Whether a store answers. Told once when it stops to, and once when it does again.

    It is the breaker between a worker and its store too. A worker asks one thing at a
    time, so that each try of an open one is a single probe, and the pauses of who asks
    are its cooldown: short ones, for a worker is to go on soon after its database does.
    """

    def __init__(self, backend: str, threshold: int = 5) -> None:
        self._backend = backend
        self._threshold = threshold
        self._circuit = CLOSED
        self._began_at: float | None = None
        self.on_end: list[Callable[[float], None]] = []
        """Called when the store answers again, with the seconds that it did not."""

    @property
    def seconds(self) -> float:
        """How long the store has not answered by now."""
        return 0.0 if self._began_at is None else time.monotonic() - self._began_at

    def begins(self, error: BaseException) -> None:
        """The store did not answer."""
        if self._began_at is None:
            self._began_at = time.monotonic()
            events.emit(events.StoreLost(backend=self._backend, error=error))
        before, self._circuit = self._circuit, self._circuit.failed("", 0, self._threshold)
        if self._circuit.is_open and not before.is_open:
            failures = self._circuit.failures
            events.emit(
                events.BreakerOpened(**self._about(), failures=failures, seconds=LONGEST_PAUSE)
            )

    def ends(self) -> None:
        """The store answered."""
        if self._began_at is None:
            return
        lasted, self._began_at = self.seconds, None
        for hear in self.on_end:
            hear(lasted)
        events.emit(events.StoreFound(backend=self._backend, seconds=lasted))
        if self._circuit.is_open:
            events.emit(events.BreakerClosed(**self._about()))
        self._circuit = CLOSED

    def _about(self) -> dict[str, str]:
        return {"kind": "backend", "backend": self._backend, "subject": self._backend}


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
