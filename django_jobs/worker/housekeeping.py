"""What a worker does for everybody: return lost jobs, ready due ones, drop old results.

In bounded steps, at moments spread between workers. Whoever does it second finds
nothing left to do.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from django_jobs.telemetry import events

if TYPE_CHECKING:
    from django_jobs.backends.base import Backend

BATCH = 1000
REAPS_PER_LEASE = 3
TIDY_SECONDS = 10.0


class Housekeeping:
    """The duties of one worker on one backend."""

    def __init__(self, backend: Backend, lease_seconds: float) -> None:
        self._backend = backend
        self._reap_every = lease_seconds / REAPS_PER_LEASE
        self._reap_at = 0.0
        self._tidy_at = 0.0

    def step(self) -> None:
        """Do what is due, if anything is."""
        now = time.monotonic()
        if now >= self._reap_at:
            reaped = self._backend.reap_expired(limit=BATCH)
            if reaped:
                events.emit(events.Reaped(backend=self._backend.alias, count=reaped))
            self._reap_at = _later(now, 0 if reaped == BATCH else self._reap_every)
        if now >= self._tidy_at:
            tidied = self._backend.tidy(limit=BATCH)
            self._tidy_at = _later(now, 0 if tidied >= BATCH else TIDY_SECONDS)


def _later(now: float, seconds: float) -> float:
    return now + seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
