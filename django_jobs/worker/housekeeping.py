"""What a worker does for everybody: return lost jobs, ready due ones, drop what is over.

In bounded steps, at moments spread between workers. Whoever does it second finds
nothing left to do. One look tells what there is to do, so that mostly nothing is.
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
TIDY_SECONDS = 300.0


class Housekeeping:
    """The duties of one worker on one backend."""

    def __init__(self, backend: Backend, lease_seconds: float) -> None:
        self._backend = backend
        self._every = lease_seconds / REAPS_PER_LEASE
        self._due_at = 0.0
        self._tidy_by = time.monotonic() + TIDY_SECONDS

    def seconds_left(self) -> float:
        """How long there is nothing to look after."""
        return max(self._due_at - time.monotonic(), 0.0)

    def hurry(self) -> None:
        """Look after everything soon."""
        self._due_at = 0.0

    def step(self) -> bool:
        """Do what is due, if anything is; whether a job may be ready because of it."""
        if self.seconds_left():
            return False
        chores = self._backend.chores()
        reaped = self._backend.reap_expired(limit=BATCH) if chores.reap else 0
        if reaped:
            events.emit(events.Reaped(backend=self._backend.alias, count=reaped))
        # One look does not tell all there may be to tidy, such as keys that are over.
        tidies = chores.tidy or time.monotonic() >= self._tidy_by
        tidied = self._backend.tidy(limit=BATCH) if tidies else 0
        if tidies:
            # What was too much for one step is not all told by the next look either.
            self._tidy_by = time.monotonic() + (TIDY_SECONDS if tidied < BATCH else 0.0)
        done = reaped < BATCH and tidied < BATCH
        # Spread, so that the workers of a fleet do not all do it at once.
        pause = self._every * random.uniform(0.5, 1.0) if done else 0.0  # noqa: S311 - spreads load, hides nothing
        self._due_at = time.monotonic() + pause
        return reaped + tidied > 0
