"""Claim: due jobs become leases, each given to one claimer only.

On PostgreSQL this is a single statement. Other databases that can skip locked rows, according to
Django's feature flag, first lock the rows and then update them by primary key. The rest pick rows
without a lock and take them by an UPDATE that only matches rows that are still ready. On SQLite
the transaction holds the only write lock from its start.
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

MANY = 20_000
"""Reading so many entries takes about as long as half a claim."""
GOES_ON_FOR = 4
"""A cursor lasts so many times as long as the claim that set it, which bounds their overhead."""
LONGEST_SECONDS = 5.0


class CursorPlace(NamedTuple):
    """Where a job stands in the order of its queue."""

    rank: int
    due: int
    id: str


class _Cursor(NamedTuple):
    until: float
    place: CursorPlace


class Cursors:
    """The cursors of queues that have many dead index entries at their start.

    While an old transaction is open, PostgreSQL cannot remove the index entries of jobs that were
    claimed since: every claim would read all of these dead entries, and add more. So after a claim
    that read many of them from the start of the index, the next claims start after the last job
    taken, for a multiple of the time that the claim took.

    A job that gets a place before the cursor (a higher priority, a returned retry) is seen by the
    next claim from the start. A claim that finds nothing also looks from the start. Where dead
    entries can be removed, every claim starts at the start.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._cursors: dict[str, _Cursor] = {}

    def place(self, queue: str) -> CursorPlace | None:
        """The job after which to start; None for the start of the index."""
        cursor = self._cursors.get(queue)
        if cursor is None:
            return None
        if self._monotonic() >= cursor.until:
            del self._cursors[queue]
            return None
        return cursor.place

    def looked(self, queue: str, passed: int, seconds: float, last: CursorPlace | None) -> None:
        """Note how many dead entries a claim from the start passed, and the last job it took."""
        if passed >= MANY and last is not None:
            until = self._monotonic() + min(GOES_ON_FOR * seconds, LONGEST_SECONDS)
            self._cursors[queue] = _Cursor(until, last)

    def went_on(self, queue: str, last: CursorPlace | None) -> None:
        """Note the last job that a claim from a cursor took; None if it found none."""
        if last is None:
            del self._cursors[queue]
        else:
            self._cursors[queue] = self._cursors[queue]._replace(place=last)


# ------------------------------------------------------------------ PostgreSQL's statement

# The claim as one statement: a single round trip, parsed and committed once. It locks jobs in
# order, skips those locked by others, and updates the locked rows, all as of one snapshot.
# Scheduled jobs that are due by now may belong before the ready ones: if there are any, the
# statement takes nothing and reports that, and the caller promotes them first.

_READY, _RUNNING, _SCHEDULED = (
    int(state) for state in (JobState.READY, JobState.RUNNING, JobState.SCHEDULED)
)
# Reading an id as text costs a fraction of making a UUID and then its text.
_COLUMNS = ", ".join(
    f"job.{name}::text" if name in {"id", "replay_of"} else f"job.{name}" for name in ROW_FIELDS
)
# How many index entries this transaction has read so far, dead ones included.
_ENTRIES_READ = "coalesce(pg_stat_get_xact_tuples_returned(to_regclass('dj_job_claim')), 0)"
# The first scheduled job is enough. For "any with due <= now" PostgreSQL would read all of the
# queue: it drops the condition on the state, which the index implies, and then cannot use due.
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
    "sum(size) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before "
    "FROM candidates"
)
# A suspect runs alone: either it is the only job taken, or the first that is not taken.
_CHOSEN = (
    "SELECT ctid FROM numbered WHERE place < greatest(2, "  # noqa: S608 - constants of ours
    f"coalesce((SELECT min(place) FROM numbered WHERE suspect OR bytes_before >= {CLAIM_BYTES}), "
    "{limit} + 1))"
)
# The rows are locked, so their ctid does not change. By primary key the planner may read the
# whole index above, which has the id too, if it expects no rows.
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
    """What a claim took: leases in order, the place of the last one, and whether more is due.

    ``candidates`` of which none was taken were changed since the statement began, and are
    there all the same. ``passed`` index entries were of jobs that are gone.
    """

    leases: list[Lease]
    last: CursorPlace | None
    any_due: bool
    candidates: int
    passed: int


def take(
    connection: BaseDatabaseWrapper,
    claim: Claim,
    queue: str,
    *,
    behind: CursorPlace | None = None,
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
    return Taken(leases, CursorPlace(*_order(rows[-1])), any_due, candidates, read - candidates)


PROMOTED_PER_CLAIM = 100
FEW = 64  # up to so many bodies are read without asking for their sizes
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
        """Whether rows read in a transaction can be updated in it without waiting."""
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

    def _taken(self, queue: str, behind: CursorPlace | None) -> Taken:
        """Claim with one statement, or in a transaction if scheduled jobs have to be promoted."""

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
        """A lease of this job, due or not, unless it runs or is gone."""
        waiting = self._jobs().filter(pk=job_id, backend=self.backend)
        waiting = waiting.exclude(state=JobState.RUNNING)
        return in_transition(self.alias, lambda _: self._lease(waiting))

    def _lease(self, candidates: QuerySet[Job]) -> list[Lease]:
        # Where rows cannot be skipped, the claim waits for the lock and checks the row again.
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
        """Lease the rows that have not changed since; of each row only one claimer succeeds."""
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
        """How many rows to read: fewer if their bodies are large."""
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
    """Make due jobs of one queue, or of all, ready, the longest due first; return how many."""
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
    """The scheduled jobs of a queue in the order in which they become due."""
    scheduled = Job.objects.using(alias).filter(queue=queue, state=JobState.SCHEDULED)
    return scheduled.order_by("due", "id")


def _promote(alias: str, clock: StoreClock, queue: str, limit: int) -> int:
    jobs = Job.objects.using(alias)
    due = _scheduled(alias, queue).filter(due__lte=clock.now())
    if connections[alias].features.has_select_for_update_skip_locked:
        # By primary key alone, see settle.py: the index of scheduled jobs may seem small.
        due, still = due.select_for_update(skip_locked=True), jobs
    else:
        still = jobs.filter(state=JobState.SCHEDULED)
    keys = list(due.values_list("pk", flat=True)[:limit])
    return still.filter(pk__in=keys).update(state=JobState.READY) if keys else 0


def _until_suspect(rows: list[Any]) -> list[Any]:
    """Cut the rows so that a suspect, which runs alone, is the only one or not among them."""
    for place, row in enumerate(rows):
        if row[_SUSPECT]:
            return rows[: max(place, 1)]
    return rows
