"""What operators and settings hold queues to, as scripts are told it.

It stands in the Django database, where operators set it. While that is away, what was
read last holds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from django.db import Error

from django_jobs.backends.database.limits import Limits, limits_of, tell_of_unread
from django_jobs.backends.rates import SLOTS, Lateness
from django_jobs.backends.shared_breakers import LOOK_SECONDS
from django_jobs.conf import get_settings
from django_jobs.db.transactions import in_reading
from django_jobs.models import QueueControl
from django_jobs.routers import job_databases
from django_jobs.telemetry.events import LimitsUnread, emit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_jobs.backends.base import Lease

LOOK_AGAIN_SECONDS = 5.0
VALUES = 6
RATE, LATE = 1, 4
_NONE = Limits()


class Held(NamedTuple):
    """What holds for the queues of a backend."""

    limits: dict[str, Limits]
    paused: frozenset[str]


class QueueLimits:
    """The limits of one backend's queues, at most half a second old."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._held = Held({}, frozenset())
        self._look_at = float("-inf")
        self._lateness: defaultdict[str, Lateness] = defaultdict(Lateness)

    def rated(self, queues: Iterable[str]) -> set[str]:
        """Those of some queues with a rate limit."""
        known = self._current().limits
        return {name for name in queues if name in known and known[name].rate} if known else set()

    def claimed(self, leases: Sequence[Lease]) -> None:
        """These are about to start."""
        if leases[0].start_by is not None:
            self._lateness[leases[0].queue].claimed(leases[0])

    def returned(self, queue: str, leases: Sequence[Lease]) -> None:
        """These were given back and did not start."""
        rate = self._current().limits.get(queue, _NONE).rate
        if rate is not None:
            self._lateness[queue].returned(rate, leases)

    def args(self, queues: list[str]) -> list[str | int]:
        """Six values for each queue: paused, rate, window, slots, lateness, places.

        None at all where no queue has any: there may be thousands.
        """
        held = self._current()
        if not any(queue in held.limits or queue in held.paused for queue in queues):
            return []
        told: list[str | int] = []
        for queue in queues:
            limits = held.limits.get(queue, _NONE)
            rate, places = limits.rate, limits.concurrency
            told += [
                int(queue in held.paused),
                rate.limit if rate else 0,
                rate.window if rate else 0,
                SLOTS,
                self._lateness[queue].allowed(rate) if rate else 0,
                -1 if places is None else places,
            ]
        return told

    def limits(self) -> dict[str, Limits]:
        """What queues are limited to, of those that are not paused."""
        held = self._current()
        return {name: one for name, one in held.limits.items() if name not in held.paused}

    def is_paused(self, queue: str) -> bool:
        """Whether an operator lets nothing be claimed from the queue."""
        return queue in self._current().paused

    def _current(self) -> Held:
        if time.monotonic() >= self._look_at:
            try:
                database = job_databases(get_settings())[0]
                before, self._held = self._held, in_reading(database, lambda: self._read(database))
                tell_of_unread(self._backend, before.limits, self._held.limits)
                self._look_at = time.monotonic() + LOOK_SECONDS
            except Error as error:
                emit(LimitsUnread(backend=self._backend, error=error))
                self._look_at = time.monotonic() + LOOK_AGAIN_SECONDS
        return self._held

    def _read(self, database: str) -> Held:
        paused = QueueControl.objects.using(database).filter(backend=self._backend, paused=True)
        return Held(
            limits_of(database, self._backend), frozenset(paused.values_list("queue", flat=True))
        )
