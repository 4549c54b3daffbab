"""What a worker does for everybody: return lost jobs, ready due ones, drop what is over.

In bounded steps, at moments spread between workers. Whoever does it second finds
nothing left to do. One look tells what there is to do, so that mostly nothing is.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from django.db import Error

from django_jobs.telemetry import events
from django_jobs.telemetry.events import DutyFailed
from django_jobs.worker.store import Trouble, trouble_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Backend
    from django_jobs.worker.store import Outage

T = TypeVar("T")

BATCH = 1000
AGAIN_SECONDS = 3.0
"""After so long a duty that failed is tried again."""
REAPS_PER_LEASE = 3
HICCUP_SHARE = 12
"""An outage shorter than this part of a lease ends no lease that is renewed in time."""
TIDY_SECONDS = 300.0
_LOOK = "keep house"


class Duties:
    """What a worker does beside its jobs. None that fails keeps others from being done.

    It is tried again after a while, and told of once until it goes well.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._failed_at: dict[str, float] = {}

    def do(self, duty: str, work: Callable[[], T]) -> T | None:
        """What the work answers; None where it failed now or just before.

        Raises what a store that serves nobody says, for that is everybody's trouble.
        """
        if self.rests(duty):
            return None
        try:
            answer = work()
        except Exception as error:
            if isinstance(error, Error | OSError) and trouble_of(error) is Trouble.STORE:
                raise
            known = duty in self._failed_at
            self._failed_at[duty] = time.monotonic()
            if not known:
                about = {"backend": self._backend.alias, "duty": duty}
                events.emit(DutyFailed(**about, error=error))
            return None
        self._failed_at.pop(duty, None)
        return answer

    def rests(self, duty: str) -> bool:
        """Whether it failed just before, and is not tried yet."""
        failed_at = self._failed_at.get(duty)
        return failed_at is not None and time.monotonic() < failed_at + AGAIN_SECONDS


class Housekeeping:
    """The duties of one worker on one backend. ``outage``: the worker's own, of its store."""

    def __init__(
        self, backend: Backend, lease_seconds: float, outage: Outage | None = None
    ) -> None:
        self._backend = backend
        self._duties = Duties(backend)
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
        """Look after everything soon; not before a look that failed is to be tried again."""
        if not self._duties.rests(_LOOK):
            self._due_at = 0.0

    def step(self) -> bool:
        """Do what is due, if anything is; whether a job may be ready because of it."""
        if self.seconds_left():
            return False
        self._due_at = time.monotonic() + AGAIN_SECONDS  # if something fails
        chores = self._duties.do(_LOOK, self._backend.chores)
        if chores is None:
            return False
        reaps = chores.reap and self._may_reap()
        reaped = (self._duties.do("return lost jobs", self._reap) if reaps else 0) or 0
        if reaped:
            events.emit(events.Reaped(backend=self._backend.alias, count=reaped))
        # One look does not tell all there may be to tidy, such as keys that are over.
        tidies = chores.tidy or time.monotonic() >= self._tidy_by
        tidied = (self._duties.do("tidy up", self._tidy) if tidies else 0) or 0
        if tidies:
            # What was too much for one step is not all told by the next look either.
            self._tidy_by = time.monotonic() + (TIDY_SECONDS if tidied < BATCH else 0.0)
        done = reaped < BATCH and tidied < BATCH
        # Spread, so that the workers of a fleet do not all do it at once.
        pause = self._every * random.uniform(0.5, 1.0) if done else 0.0  # noqa: S311 - spreads load, hides nothing
        self._due_at = time.monotonic() + pause
        return reaped + tidied > 0

    def _reap(self) -> int:
        return self._backend.reap_expired(limit=BATCH)

    def _tidy(self) -> int:
        return self._backend.tidy(limit=BATCH)

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
