"""Claim: due jobs become leases, each given to one claimer only.

On PostgreSQL that is one statement, see ``claim_statement``. Where another database can skip
locked rows, they are locked first and then updated by
primary key; elsewhere they are picked without a lock and taken by an UPDATE that only
succeeds for rows that are still ready. Which of the two is decided by Django's feature
flag. On SQLite the transaction has the database's one write lock from its start.
"""

from __future__ import annotations

import time
import uuid
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import Exists, F
from django.db.models.functions import Length

from django_jobs.backends.database import glance
from django_jobs.backends.database.claim_statement import take
from django_jobs.backends.database.cursors import Cursors
from django_jobs.backends.database.rows import ROW_FIELDS, lease_of
from django_jobs.backends.database.unreadable import Rows, past_unreadable
from django_jobs.backends.values import CLAIM_BYTES
from django_jobs.clock import to_microseconds
from django_jobs.db.transactions import in_statement, in_transition
from django_jobs.ids import process_name
from django_jobs.models import Job, JobState, QueueControl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from django_jobs.backends.base import Lease
    from django_jobs.backends.database.claim_statement import Taken
    from django_jobs.backends.database.cursors import Place
    from django_jobs.db.clock import StoreClock

PROMOTED_PER_CLAIM = 100
FEW = 64  # so many bodies may come unseen
_TRIES = 10
_SUSPECT = ROW_FIELDS.index("suspect")


class Claim:
    """One fetch from one queue of one backend."""

    def __init__(
        self,
        alias: str,
        clock: StoreClock,
        *,
        backend: str,
        limit: int,
        lease_seconds: float,
        cursors: Cursors | None = None,
    ) -> None:
        self.alias = alias
        self.clock = clock
        self.backend = backend
        self.limit = limit
        self.lease = to_microseconds(lease_seconds)
        self.cursors = cursors or Cursors()
        # Known before the UPDATE, which cannot return rows everywhere.
        self.token = uuid.uuid4().hex

    def from_queue(self, queue: str) -> list[Lease]:
        """Up to ``limit`` leases, in order; a suspect comes alone."""
        connection = connections[self.alias]
        if not self.keeps_what_it_read(connection):
            return self._optimistic(queue)
        if connection.vendor == "postgresql":
            return self._at_once(queue)
        return in_transition(self.alias, lambda _: self._locking(queue))

    def keeps_what_it_read(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether rows read in a transition stay free for its UPDATE, without waiting."""
        skips = connection.features.has_select_for_update_skip_locked
        return skips or connection.vendor == "sqlite"

    def _at_once(self, queue: str) -> list[Lease]:
        if place := self.cursors.place(queue):
            taken = self._taken(queue, place)
            self.cursors.went_on(queue, taken.last)
            if taken.leases:
                return taken.leases
        began = time.monotonic()
        taken = self._taken(queue, None)
        self.cursors.looked(queue, taken.passed, time.monotonic() - began, taken.last)
        return taken.leases

    def _taken(self, queue: str, behind: Place | None) -> Taken:
        """What one statement takes; more and a transaction where scheduled jobs became due."""

        def promoted_first(connection: BaseDatabaseWrapper) -> Taken:
            _promote(self.alias, self.clock, queue, PROMOTED_PER_CLAIM)
            return take(connection, self, queue, behind=behind, unless_due=False)

        def once() -> Taken:
            taken = in_statement(self.alias, lambda c: take(c, self, queue, behind=behind))
            return in_transition(self.alias, promoted_first) if taken.any_due else taken

        taken, tries = once(), 1
        while taken.found and not taken.leases and tries < _TRIES:
            taken, tries = once(), tries + 1
        return taken

    def _locking(self, queue: str) -> list[Lease]:
        _promote(self.alias, self.clock, queue, PROMOTED_PER_CLAIM)
        return self._lease(self._ready(queue))

    def only(self, job_id: str) -> list[Lease]:
        """A lease of one given job, unless it runs or is gone; whether it is due is not asked."""
        waiting = self._jobs().filter(pk=job_id, backend=self.backend)
        waiting = waiting.exclude(state=JobState.RUNNING)
        return in_transition(self.alias, lambda _: self._lease(waiting))

    def _lease(self, candidates: QuerySet[Job]) -> list[Lease]:
        # Where rows cannot be skipped, one waits for the row and asks it once more.
        skips = connections[self.alias].features.has_select_for_update_skip_locked
        rows, now = self._read(candidates.select_for_update(skip_locked=skips))
        if not rows:
            return []
        keys = [row[0] for row in rows]
        if self._jobs().filter(pk__in=keys).update(**self._claimed(now)) != len(rows):
            raise ValueError("a row is not found by its own id")
        expires = now + self.lease
        return [lease_of(row, token=self.token, expires_at=expires) for row in rows]

    def _optimistic(self, queue: str) -> list[Lease]:
        promote(self.alias, self.clock, queue, PROMOTED_PER_CLAIM)
        for _ in range(_TRIES):
            rows, now = in_statement(self.alias, lambda _: self._read(self._ready(queue)))
            if not rows:
                return []
            if leases := in_transition(self.alias, lambda _: self._take(rows, now)):  # noqa: B023 - called at once
                return leases
        return []

    def _take(self, seen: Sequence[Any], now: int) -> list[Lease]:
        """Lease what is still as it was seen; each row lets one claimer through."""
        keys = [row[0] for row in seen]
        suspect = seen[0][_SUSPECT]
        free = self._jobs().filter(pk__in=keys, state=JobState.READY, suspect=suspect)
        if not free.update(**self._claimed(now)):
            return []
        # Read again: a row may have been leased and given back since, with other counters.
        mine = self._jobs().filter(pk__in=keys, lease_token=self.token)
        rows = mine.order_by("rank", "due", "id").values_list(*ROW_FIELDS)
        expires = now + self.lease
        return [
            lease_of(row, token=self.token, expires_at=expires, extra_deliveries=0) for row in rows
        ]

    def _jobs(self) -> QuerySet[Job]:
        return Job.objects.using(self.alias)

    def met(self, queue: str) -> list[Rows]:
        """The rows that a claim from a queue reads."""
        due = Rows(_scheduled(self.alias, queue), PROMOTED_PER_CLAIM)
        return [Rows(self._ready(queue), self.limit), due]

    def _ready(self, queue: str) -> QuerySet[Job]:
        ready = self._jobs().filter(queue=queue, state=JobState.READY, backend=self.backend)
        paused = QueueControl.objects.using(self.alias).filter(
            backend=self.backend, queue=queue, paused=True
        )
        return ready.filter(~Exists(paused)).order_by("rank", "due", "id")

    def _read(self, candidates: QuerySet[Job]) -> tuple[list[Any], int]:
        found = candidates.annotate(store_now=self.clock.now())
        rows = list(found.values_list(*ROW_FIELDS, "store_now")[: self._count(candidates)])
        return _until_suspect(rows), (rows[0][-1] if rows else 0)

    def _count(self, candidates: QuerySet[Job]) -> int:
        """How many of them may come: fewer where they are large, which a driver cannot know."""
        if self.limit <= FEW:
            return self.limit
        sizes = candidates.values_list(Length("body"), flat=True)[: self.limit]
        within: int = sum(total < CLAIM_BYTES for total in accumulate(sizes))
        return min(1 + within, self.limit)

    def _claimed(self, now: int) -> dict[str, Any]:
        return {
            "state": JobState.RUNNING,
            "lease_token": self.token,
            "lease_expires": now + self.lease,
            "leased_at": now,
            "worker": process_name(),
            "deliveries": F("deliveries") + 1,
            "blocked_by": None,
        }


def promote(alias: str, clock: StoreClock, queue: str | None, limit: int) -> int:
    """Make due jobs of a queue ready, or of each in turn; the longest due first; how many."""
    promoted = 0
    for name in glance.queues_with_due(alias, clock) if queue is None else [queue]:
        left = limit - promoted
        if not left:
            break
        promoted += past_unreadable(
            alias,
            clock,
            lambda: in_transition(alias, lambda _: _promote(alias, clock, name, left)),  # noqa: B023 - called at once
            lambda: [Rows(_scheduled(alias, name), left)],  # noqa: B023 - called at once
        )
    return promoted


def _scheduled(alias: str, queue: str) -> QuerySet[Job]:
    """In their order; of those that are due at one moment, in that of their ids, as claims do."""
    scheduled = Job.objects.using(alias).filter(queue=queue, state=JobState.SCHEDULED)
    return scheduled.order_by("due", "id")


def _promote(alias: str, clock: StoreClock, queue: str, limit: int) -> int:
    jobs = Job.objects.using(alias)
    due = _scheduled(alias, queue).filter(due__lte=clock.now())
    if connections[alias].features.has_select_for_update_skip_locked:
        # By primary key alone, see held.py: the index of scheduled jobs may seem small.
        due, still = due.select_for_update(skip_locked=True), jobs
    else:
        still = jobs.filter(state=JobState.SCHEDULED)
    keys = list(due.values_list("pk", flat=True)[:limit])
    return still.filter(pk__in=keys).update(state=JobState.READY) if keys else 0


def _until_suspect(rows: list[Any]) -> list[Any]:
    """Suspects run alone, so a claim holds one of them and nothing else, or none."""
    for place, row in enumerate(rows):
        if row[_SUSPECT]:
            return rows[: max(place, 1)]
    return rows
