"""Claim: due jobs become leases, each given to one claimer only.

Where the database can skip locked rows, they are locked first and then updated by
primary key; elsewhere they are picked without a lock and taken by an UPDATE that only
succeeds for rows that are still ready. Which of the two is decided by Django's feature
flag. On SQLite the transaction has the database's one write lock from its start.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import F

from django_jobs.backends.database.rows import ROW_FIELDS, lease_of
from django_jobs.backends.database.transactions import in_transition
from django_jobs.clock import to_microseconds
from django_jobs.models import Job, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from django_jobs.backends.base import Lease
    from django_jobs.backends.database.clock import StoreClock

PROMOTED_PER_CLAIM = 100
_OPTIMISTIC_TRIES = 10
_SUSPECT = ROW_FIELDS.index("suspect")


class Claim:
    """One fetch from one queue of one backend."""

    def __init__(
        self, alias: str, clock: StoreClock, *, backend: str, limit: int, lease_seconds: float
    ) -> None:
        self.alias = alias
        self.clock = clock
        self.backend = backend
        self.limit = limit
        self.lease = to_microseconds(lease_seconds)
        # Known before the UPDATE, which cannot return rows everywhere.
        self.token = uuid.uuid4().hex

    def from_queue(self, queue: str) -> list[Lease]:
        """Up to ``limit`` leases, in order; a suspect comes alone."""
        if _locks_rows(connections[self.alias]):
            return in_transition(self.alias, lambda _: self._locking(queue))
        return self._optimistic(queue)

    def _locking(self, queue: str) -> list[Lease]:
        promote(self.alias, self.clock, queue, PROMOTED_PER_CLAIM)
        candidates = self._ready(queue).select_for_update(skip_locked=True)
        rows, now = self._read(candidates)
        rows = _until_suspect(rows)
        if not rows:
            return []
        self._jobs().filter(pk__in=[row[0] for row in rows]).update(**self._claimed(now))
        return self._leases(rows, now)

    def _optimistic(self, queue: str) -> list[Lease]:
        promote(self.alias, self.clock, queue, PROMOTED_PER_CLAIM)
        for _ in range(_OPTIMISTIC_TRIES):
            rows, now = self._read(self._ready(queue))
            rows = _until_suspect(rows)
            if not rows:
                return []
            keys = [row[0] for row in rows]
            # Several claimers may have picked the same rows; each row lets one through.
            taken = in_transition(
                self.alias,
                lambda _: (
                    self._jobs()
                    .filter(pk__in=keys, state=JobState.READY, lease_token=None)  # noqa: B023 - called at once
                    .update(**self._claimed(now))  # noqa: B023 - called at once
                ),
            )
            if taken == len(rows):
                return self._leases(rows, now)
            if taken:
                mine = self._jobs().filter(lease_token=self.token).values_list("pk", flat=True)
                won = set(mine)
                return self._leases([row for row in rows if row[0] in won], now)
        return []

    def _jobs(self) -> QuerySet[Job]:
        return Job.objects.using(self.alias)

    def _ready(self, queue: str) -> QuerySet[Job]:
        ready = self._jobs().filter(queue=queue, state=JobState.READY, backend=self.backend)
        return ready.order_by("rank", "due", "id")

    def _read(self, candidates: QuerySet[Job]) -> tuple[list[Any], int]:
        found = candidates.annotate(store_now=self.clock.now())
        rows = list(found.values_list(*ROW_FIELDS, "store_now")[: self.limit])
        return rows, (rows[0][-1] if rows else 0)

    def _claimed(self, now: int) -> dict[str, Any]:
        return {
            "state": JobState.RUNNING,
            "lease_token": self.token,
            "lease_expires": now + self.lease,
            "deliveries": F("deliveries") + 1,
        }

    def _leases(self, rows: Sequence[Any], now: int) -> list[Lease]:
        expires_at = now + self.lease
        return [lease_of(row, token=self.token, expires_at=expires_at) for row in rows]


def promote(alias: str, clock: StoreClock, queue: str | None, limit: int) -> int:
    """Make due jobs ready, the longest due first; how many."""

    def work(_: BaseDatabaseWrapper) -> int:
        keys = list(_lockable(_due(alias, clock, queue)).values_list("pk", flat=True)[:limit])
        if not keys:
            return 0
        still = Job.objects.using(alias).filter(pk__in=keys, state=JobState.SCHEDULED)
        return still.update(state=JobState.READY)

    return in_transition(alias, work)


def _due(alias: str, clock: StoreClock, queue: str | None) -> QuerySet[Job]:
    due = Job.objects.using(alias).filter(state=JobState.SCHEDULED, due__lte=clock.now())
    return (due if queue is None else due.filter(queue=queue)).order_by("due")


def _lockable(jobs: QuerySet[Job]) -> QuerySet[Job]:
    if connections[jobs.db].features.has_select_for_update_skip_locked:
        return jobs.select_for_update(skip_locked=True)
    return jobs


def _locks_rows(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "sqlite" or connection.features.has_select_for_update_skip_locked


def _until_suspect(rows: list[Any]) -> list[Any]:
    """Suspects run alone, so a claim holds one of them and nothing else, or none."""
    for place, row in enumerate(rows):
        if row[_SUSPECT]:
            return rows[: max(place, 1)]
    return rows
