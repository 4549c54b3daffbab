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
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections
from django.db.models import Exists, F
from django.db.models.functions import Length

from django_jobs.backends.database import wait
from django_jobs.backends.database.rows import ROW_FIELDS, lease_of
from django_jobs.backends.database.unreadable import Rows, past_unreadable
from django_jobs.backends.values import CLAIM_BYTES
from django_jobs.clock import to_microseconds
from django_jobs.db.transactions import in_statement, in_transition
from django_jobs.ids import process_name
from django_jobs.models import Job, JobState, QueueControl
from django_jobs.wire.envelope import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from django_jobs.backends.base import Lease
    from django_jobs.db.clock import StoreClock


# Where claims go on, so that each does not read the same dead index entries again.
#
# While an old transaction is open, PostgreSQL can remove no index entry of a job that was
# claimed since: every claim would read all of them, and there are more after each. So when
# a claim from the start of the index passed many such entries, those after it go on behind
# the last job that was taken, for a while that is a multiple of what it took.
#
# What that means for the order: a job that comes to stand before that place (a higher
# priority, a retry that returned) is seen by the next claim from the start. A claim that
# finds nothing looks from the start before it says so. Where dead entries can be removed,
# every claim starts at the start.


MANY = 20_000
"""To read so many takes about as long as half a claim."""
GOES_ON_FOR = 4
"""How many times what that claim took. It bounds the share of time that such claims take."""
LONGEST_SECONDS = 5.0


class Place(NamedTuple):
    """Where a job stands in the order of its queue."""

    rank: int
    due: int
    id: str


class _Cursor(NamedTuple):
    until: float
    place: Place


class Cursors:
    """The places of the queues that have many dead entries at their start."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._cursors: dict[str, _Cursor] = {}

    def place(self, queue: str) -> Place | None:
        """Behind which job to look; None for the start."""
        cursor = self._cursors.get(queue)
        if cursor is None:
            return None
        if self._monotonic() >= cursor.until:
            del self._cursors[queue]
            return None
        return cursor.place

    def looked(self, queue: str, passed: int, seconds: float, last: Place | None) -> None:
        """A claim from the start passed so many dead entries; this was the last job it took."""
        if passed >= MANY and last is not None:
            until = self._monotonic() + min(GOES_ON_FOR * seconds, LONGEST_SECONDS)
            self._cursors[queue] = _Cursor(until, last)

    def went_on(self, queue: str, last: Place | None) -> None:
        """A claim from a place took jobs up to this one, or found none."""
        if last is None:
            del self._cursors[queue]
        else:
            self._cursors[queue] = self._cursors[queue]._replace(place=last)


# The claim as one statement, for PostgreSQL: a single round trip, parsed and committed once.
#
# Jobs are locked in order, those that somebody else has locked are skipped, and what was
# locked is updated by primary key, all as of one snapshot. Jobs that were scheduled and are
# due by now may belong before those that are ready. So where there are any, the statement
# takes nothing and says so, and the caller promotes them first.


_READY, _RUNNING, _SCHEDULED = (
    int(state) for state in (JobState.READY, JobState.RUNNING, JobState.SCHEDULED)
)
# The driver makes text of an id at a fraction of what a UUID and then its text would cost.
_COLUMNS = ", ".join(
    f"job.{name}::text" if name in {"id", "replay_of"} else f"job.{name}" for name in ROW_FIELDS
)
# What this session has read from the index so far, dead entries that must stay included.
_ENTRIES_READ = "coalesce(pg_stat_get_xact_tuples_returned(to_regclass('dj_job_claim')), 0)"
# The first one tells. Asked for any with due <= now, PostgreSQL reads all of the queue's, for
# it drops the state that is implied by the index, and with it the way to due.
_DUE = (
    f"SELECT coalesce((SELECT due <= {{now}} FROM django_jobs_job WHERE queue = %s "  # noqa: S608 - constants of ours
    f"AND state = {_SCHEDULED} ORDER BY due LIMIT 1), false) AS any_due, {_ENTRIES_READ} AS read"
)
_PAUSED = (
    "EXISTS (SELECT 1 FROM django_jobs_queuecontrol WHERE backend = %s AND queue = %s AND paused)"
)
_CANDIDATES = (
    "SELECT ctid, suspect, octet_length(body) AS size FROM django_jobs_job "  # noqa: S608 - constants of ours
    f"WHERE queue = %s AND state = {_READY} AND backend = %s AND NOT {_PAUSED}"
    "{behind}{unless_due} ORDER BY rank, due, id LIMIT {limit} FOR UPDATE SKIP LOCKED"
)
_NUMBERED = (
    "SELECT ctid, suspect, row_number() OVER () AS place, "
    "sum(size) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before FROM candidates"
)
# A suspect is to run alone: it is the only one that is taken, or the first that is not.
_CHOSEN = (
    "SELECT ctid FROM numbered WHERE place < greatest(2, "  # noqa: S608 - constants of ours
    f"coalesce((SELECT min(place) FROM numbered WHERE suspect OR bytes_before >= {CLAIM_BYTES}), "
    "{limit} + 1))"
)
# The rows are locked, so they stay where they are. By primary key the planner may read
# all of the index above, which has the id too, when it believes that there is no row.
_CLAIMED = (
    f"UPDATE django_jobs_job AS job SET state = {_RUNNING}, lease_token = %s, worker = %s, "  # noqa: S608 - constants of ours
    "leased_at = {now}, lease_expires = {now} + {lease}, "
    f"deliveries = least(deliveries, {FULL}) + 1 "
    f"WHERE ctid = ANY (ARRAY({_CHOSEN})) RETURNING job.ctid::text, {_COLUMNS}"
)
_CLAIM = (
    f"WITH due AS MATERIALIZED ({_DUE}), candidates AS MATERIALIZED ({_CANDIDATES}), "  # noqa: S608 - constants of ours
    f"numbered AS MATERIALIZED ({_NUMBERED}), "
    f"claimed AS ({_CLAIMED}) "
    "SELECT due.any_due, (SELECT count(*) FROM numbered), "
    f"{_ENTRIES_READ} - due.read, claimed.* "
    "FROM due LEFT JOIN claimed ON true"
)
_BEFORE = 4  # columns that are not those of every row that is read
_UNLESS_DUE = " AND NOT (SELECT any_due FROM due)"
_BEHIND = " AND (rank, due, id) > (%s, %s, %s)"
_ID, _LEASE_EXPIRES = (_BEFORE + ROW_FIELDS.index(name) for name in ("id", "lease_expires"))
_order = itemgetter(*(_BEFORE + ROW_FIELDS.index(name) for name in ("rank", "due", "id")))


class Taken(NamedTuple):
    """What came of it: leases in their order, where the last one stood, what else is due.

    ``candidates`` of which none was taken were changed since the statement began, and are
    there all the same. ``passed`` index entries were of jobs that are gone.
    """

    leases: list[Lease]
    last: Place | None
    any_due: bool
    candidates: int
    passed: int


def take(
    connection: BaseDatabaseWrapper,
    claim: Claim,
    queue: str,
    *,
    behind: Place | None = None,
    unless_due: bool = True,
) -> Taken:
    """Claim from a queue, from its start or behind a place."""
    sql = _CLAIM.format(
        now=claim.clock.sql(connection.vendor),
        limit=int(claim.limit),
        lease=int(claim.lease),
        behind=_BEHIND if behind else "",
        unless_due=_UNLESS_DUE if unless_due else "",
    )
    paused = [claim.backend, queue]
    params = [queue, queue, claim.backend, *paused, *(behind or ()), claim.token, process_name()]
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    any_due, candidates, read, _ = rows[0][:_BEFORE]
    if rows[0][_ID] is None:
        return Taken([], None, any_due, candidates, read - candidates)
    rows.sort(key=_order)
    token, expires_at = claim.token, rows[0][_LEASE_EXPIRES]
    leases = [
        lease_of(
            row[_BEFORE:],
            token=token,
            expires_at=expires_at,
            extra_deliveries=0,
            handle=row[_BEFORE - 1],
        )
        for row in rows
    ]
    return Taken(leases, Place(*_order(rows[-1])), any_due, candidates, read - candidates)


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
        while taken.candidates and not taken.leases and tries < _TRIES:
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
        annotated = candidates.annotate(store_now=self.clock.now())
        rows = list(annotated.values_list(*ROW_FIELDS, "store_now")[: self._count(candidates)])
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
    for name in wait.queues_with_due(alias, clock) if queue is None else [queue]:
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
