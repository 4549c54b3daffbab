"""What a worker does for everybody: return lost jobs, ready due ones, drop what is over.

In bounded steps, at moments spread between workers. Whoever does it second finds
nothing left to do. One look tells what there is to do, so that mostly nothing is.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from django_jobs.telemetry import events
from django_jobs.telemetry.trouble_events import DutyFailed
from django_jobs.worker.store import Trouble, trouble_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Backend
    from django_jobs.worker.store import Outage

BATCH = 1000
REAPS_PER_LEASE = 3
HICCUP_SHARE = 12
"""An outage shorter than this part of a lease ends no lease that is renewed in time."""
TIDY_SECONDS = 300.0


class Housekeeping:
    """The duties of one worker on one backend. ``outage``: the worker's own, of its store."""

    def __init__(
        self, backend: Backend, lease_seconds: float, outage: Outage | None = None
    ) -> None:
        self._backend = backend
        self._lease_seconds = lease_seconds
        self._reaps_from = 0.0
        self._outage = outage
        if outage is not None:
            outage.on_end.append(self._let_others_come_back)
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
        reaps = chores.reap and self._may_reap()
        reaped = self._done(self._backend.reap_expired) if reaps else 0
        if reaped:
            events.emit(events.Reaped(backend=self._backend.alias, count=reaped))
        # One look does not tell all there may be to tidy, such as keys that are over.
        tidies = chores.tidy or time.monotonic() >= self._tidy_by
        tidied = self._done(self._backend.tidy) if tidies else 0
        if tidies:
            # What was too much for one step is not all told by the next look either.
            self._tidy_by = time.monotonic() + (TIDY_SECONDS if tidied < BATCH else 0.0)
        done = reaped < BATCH and tidied < BATCH
        # Spread, so that the workers of a fleet do not all do it at once.
        pause = self._every * random.uniform(0.5, 1.0) if done else 0.0  # noqa: S311 - spreads load, hides nothing
        self._due_at = time.monotonic() + pause
        return reaped + tidied > 0

    def _done(self, duty: Callable[..., int]) -> int:
        """What a duty has done. One that is refused, or fails as nobody foresaw, stops no other."""
        try:
            return duty(limit=BATCH)
        except Exception as error:
            if trouble_of(error) is not Trouble.REFUSED:
                raise
            events.emit(DutyFailed(backend=self._backend.alias, error=error))
            return 0

    def _may_reap(self) -> bool:
        # This very look may be the first that the store has answered.
        back = self._outage is None or self._is_hiccup(self._outage.seconds)
        return back and time.monotonic() >= self._reaps_from

    def _let_others_come_back(self, seconds: float) -> None:
        """After an outage reap nothing for one lease.

        Leases ended then that nobody could renew. Their workers live, and are about to renew
        them or to give the jobs back. Where connections only break again and again, lost
        jobs have to be returned all the same.
        """
        if not self._is_hiccup(seconds):
            self._reaps_from = time.monotonic() + self._lease_seconds

    def _is_hiccup(self, seconds: float) -> bool:
        return seconds < self._lease_seconds / HICCUP_SHARE
