"""The rows of ticks: written with their jobs, kept up to date with the outcomes, and purged."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from django.db import Error, IntegrityError, connections, transaction
from django.db.models import Max, Min, Q

from django_jobs.backends.base import Inspects, joins
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND, to_datetime, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.cron import enqueue
from django_jobs.db.clock import for_people
from django_jobs.db.transactions import in_reading, in_transition, is_conflict, is_connection_lost
from django_jobs.exceptions import BackendUnavailable, InvalidBackend
from django_jobs.ids import process_name
from django_jobs.models import (
    FailedJob,
    OutboxJob,
    ScheduleState,
    ScheduleTick,
    TickDecision,
    TickOutcome,
    schedule_key,
)
from django_jobs.routers import outbox_database
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from django_jobs.backends.base import Backend
    from django_jobs.cron.decide import TickVerdict
    from django_jobs.cron.schedule import Schedule
    from django_jobs.enqueue import PreparedJob


UNDECIDED = "undecided"
"""Of a tick whose dependency has not been decided yet; never stored in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided for one tick, or would be."""

    name: str
    tick: datetime
    decision: str
    reason: str = ""
    job_id: str = ""


class Recorder:
    """Writes ticks. ``in_child`` is called with jobs that a backend would run at enqueue."""

    def __init__(
        self,
        alias: str,
        in_child: Callable[[str, int, PreparedJob[Any]], None] | None = None,
    ) -> None:
        self.alias = alias
        self._in_child = in_child

    def write(
        self,
        schedule: Schedule,
        tick: int,
        verdict: TickVerdict,
        now: int,
        press: str | None = None,
        by: str = "",
    ) -> ScheduleTick | None:
        """Write the row of a tick, and enqueue its job; None if another scheduler was first.

        The result of the enqueue is known only after the transaction: a broker gets the job
        after the commit, and if it refuses, that is written into the row.
        """
        row = ScheduleTick(
            key=schedule_key(schedule.name),
            name=schedule.name,
            tick=tick,
            decision=str(verdict.decision),
            reason=verdict.reason,
            decided_at=for_people(now),
            decided_by=(by or process_name())[:150],
            press=press,
        )
        try:
            with transaction.atomic(using=self.alias):
                row.save(using=self.alias, force_insert=True)
        except IntegrityError:
            return None
        if verdict.has_a_job:
            self.enqueue_job(schedule, row)
        return row

    def enqueue_job(self, schedule: Schedule, row: ScheduleTick) -> None:
        try:
            with transaction.atomic(using=self.alias):
                job = enqueue.prepared(schedule, row.tick)
                row.job_id = job.id
                row.backend = job.plan.resolve()[0].alias
                row.outcome = TickOutcome.OPEN
                row.save(using=self.alias)
                enqueue.hand_over(self.alias, row, job, self._in_child)
        except Exception as error:
            if isinstance(error, Error) and (is_connection_lost(error) or is_conflict(error)):
                raise
            enqueue.failed(self.alias, row, error)


def locked(alias: str, model: Any) -> Any:
    """Rows to lock until the end of the transaction; those that others have locked are skipped."""
    features = connections[alias].features
    rows = model.objects.using(alias)
    if not features.has_select_for_update:
        return rows  # the transaction locks the whole database
    return rows.select_for_update(skip_locked=features.has_select_for_update_skip_locked)


def decided_of(row: ScheduleTick) -> Decided:
    """What was decided, from the row as it is now."""
    return Decided(
        name=row.name,
        tick=to_datetime(row.tick),
        decision=str(row.decision),
        reason=row.reason,
        job_id=str(row.job_id or ""),
    )


def emit_decided(row: ScheduleTick) -> Decided:
    """Emit the event of a tick, once it is committed and a broker has taken or refused its job."""
    decided = decided_of(row)
    events.emit(
        events.TickDecided(
            schedule=decided.name,
            decision=decided.decision,
            reason=decided.reason,
            job_id=decided.job_id,
            tick=decided.tick.isoformat(),
        )
    )
    return decided


# Outcomes of ticks: how their jobs ended, stored before the results expire.


AT_ONCE = 500
LOST_AFTER_SECONDS = 300
"""A job without a trace counts as lost only after so long: it may be on its way to a broker."""


def settle(alias: str, ticks: Sequence[ScheduleTick], now: int) -> None:
    """Update the outcomes of those ticks that were open when they were read."""
    by_backend: dict[str, list[ScheduleTick]] = {}
    for tick in ticks:
        if tick.outcome == TickOutcome.OPEN:
            by_backend.setdefault(tick.backend, []).append(tick)
    for name, some in by_backend.items():
        for start in range(0, len(some), AT_ONCE):
            _settle_backend(alias, name, some[start : start + AT_ONCE], now)


def _settle_backend(alias: str, name: str, ticks: Sequence[ScheduleTick], now: int) -> None:
    # Counted from the decision, as a tick that was made up for is older than its job.
    long_ago = for_people(now - LOST_AFTER_SECONDS * SECOND)
    long_hence = for_people(now + LOST_AFTER_SECONDS * SECOND)  # by a clock that was ahead
    endings = _endings(alias, name, [tick.job_id for tick in ticks if tick.job_id])
    by_outcome: dict[str, list[int]] = {}
    for tick in ticks:
        ended = endings.get(tick.job_id) if tick.job_id else TickOutcome.UNKNOWN
        if ended is None and not long_ago <= tick.decided_at <= long_hence:
            ended = TickOutcome.UNKNOWN
        if ended is None or ended == TickOutcome.OPEN:
            continue
        tick.outcome = ended
        by_outcome.setdefault(ended, []).append(tick.pk)
    rows = ScheduleTick.objects.using(alias)
    for ended, ids in by_outcome.items():
        rows.filter(pk__in=ids, outcome=TickOutcome.OPEN).update(outcome=ended)


class Outcomes:
    """Settles the open ticks of all schedules in turn, in bounded steps, as housekeeping.

    Each step continues after the last tick of the one before: more ticks may stay open for long
    than fit in one step. The start is random, as each tick from a crontab is a new process.
    """

    def __init__(self, alias: str, limit: int = AT_ONCE) -> None:
        self._alias = alias
        self._limit = limit
        self._last: int | None = None

    def step(self, now: int) -> None:
        """Settle the next open ticks."""
        rows = ScheduleTick.objects.using(self._alias).filter(outcome=TickOutcome.OPEN)
        rows = rows.order_by("id")
        if self._last is None:
            self._last = _random_start(rows, self._limit)
        ticks = list(rows.filter(id__gt=self._last)[: self._limit])
        if left := self._limit - len(ticks):
            ticks += rows.filter(id__lte=self._last)[:left]
        if ticks:
            self._last = ticks[-1].pk
        settle(self._alias, ticks, now)


def _random_start(rows: QuerySet[ScheduleTick], limit: int) -> int:
    if not rows[limit : limit + 1]:
        return 0  # one step takes them all
    ends = rows.aggregate(first=Min("id"), last=Max("id"))
    return random.randint(ends["first"], ends["last"])  # noqa: S311 - spreads load, hides nothing


def _endings(alias: str, name: str, ids: list[UUID]) -> dict[UUID, str]:
    """What is known about jobs of a backend, as outcomes of ticks."""
    try:
        backend = backends[name]
    except InvalidBackend:  # it is not configured any more
        return dict.fromkeys(ids, TickOutcome.UNKNOWN)
    home = outbox_database(get_settings(), name)
    try:
        endings = _waiting(home, name, ids) | _outcomes(backend, ids)
    except (BackendUnavailable, OSError):
        return dict.fromkeys(ids, TickOutcome.OPEN)  # unreachable: the outcomes stay open
    except Error:
        if backend.home == alias:
            raise
        return dict.fromkeys(ids, TickOutcome.OPEN)  # as above
    # Dead letters outside the backend: jobs refused from its outbox, and those of a broker.
    for place in {home or alias, backend.home or alias} - {backend.home}:
        dead = FailedJob.objects.using(place).filter(job_id__in=ids, backend=name)
        endings.update(dict.fromkeys(dead.values_list("job_id", flat=True), TickOutcome.DEAD))
    if home is None and joins(backend, alias):
        # Committed in one transaction with its tick: the job existed, so it has ended.
        endings = dict.fromkeys(ids, TickOutcome.UNKNOWN) | endings
    return endings


def _waiting(home: str | None, name: str, ids: list[UUID]) -> dict[UUID, str]:
    """Jobs in the outbox. Looked for first, as jobs move on from there, and never back."""
    if home is None:
        return {}
    rows = OutboxJob.objects.using(home).filter(backend=name, job_id__in=ids)
    return dict.fromkeys(rows.values_list("job_id", flat=True), TickOutcome.OPEN)


def _outcomes(backend: Backend, ids: list[UUID]) -> dict[UUID, str]:
    if not isinstance(backend, Inspects):
        return {}
    outcomes = backend.outcomes(list(map(str, ids)))
    return {UUID(job_id): ended or TickOutcome.OPEN for job_id, ended in outcomes.items()}


# Purging: old ticks except the latest of each schedule, and the progress of removed schedules.


KEPT = 100
"""How many ticks of each schedule are kept, however old."""
KEPT_FOR = timedelta(days=30)
STEP = 1000
SCHEDULES_AT_ONCE = 500
KEYS_PER_STATEMENT = 50
PAGES = 2
"""How many pages of schedules one step searches for old ticks."""
GONE_AFTER = 86_400 * SECOND
"""After so long a schedule unknown to this code is taken as removed, not as one of newer code."""

_KEYS_BY_STEPS = """
WITH RECURSIVE page (schedule, place) AS (
    SELECT MIN({key}), 1 FROM {table} WHERE {key} > %s
    UNION ALL
    SELECT (SELECT MIN({key}) FROM {table} WHERE {key} > page.schedule), page.place + 1
    FROM page WHERE page.schedule IS NOT NULL AND page.place < %s
)
"""
# MariaDB and MySQL skip from key to key by themselves, but read a subquery from its start.
_KEYS_BY_GROUPS = """
WITH page (schedule) AS (
    SELECT {key} FROM {table} WHERE {key} > %s GROUP BY {key} ORDER BY {key} LIMIT %s
)
"""
# The next schedules, each with its oldest tick and the oldest of the latest ones that are kept;
# NULL for the latter if there are not so many.
_NEXT = """
SELECT schedule, {first}, CASE WHEN {first} < %s THEN
    (SELECT {tick} FROM {table} WHERE {key} = page.schedule
     ORDER BY {key} DESC, {tick} DESC LIMIT 1 OFFSET %s)
END
FROM page WHERE schedule IS NOT NULL ORDER BY schedule
"""
_FIRST = "(SELECT {tick} FROM {table} WHERE {key} = page.schedule ORDER BY {key}, {tick} LIMIT 1)"


class _Next(NamedTuple):
    key: str
    first: int
    kept_from: int | None


class TickPurge:
    """Deletes old ticks of all schedules except the latest, in turn, in bounded steps.

    Ticks that are kept are not read, so they cannot use up a step. The start is random, as a
    crontab starts a new process each time. Ticks that wait or have a live job are kept.
    """

    def __init__(
        self, alias: str, *, older_than: timedelta = KEPT_FOR, kept: int = KEPT, step: int = STEP
    ) -> None:
        self.alias = alias
        self.round_is_over = False
        self._older_than = older_than
        self._kept = kept
        self._step = step
        self._begins = self._after = secrets.token_hex(32)
        self._wrapped = False

    def step(self, now: int) -> int:
        """Delete at most ``step`` ticks of the next schedules; returns how many."""
        self.round_is_over = False
        for _ in range(PAGES):
            if gone := self._page(now):
                return gone
            if self.round_is_over:
                break
        return 0

    def _page(self, now: int) -> int:
        before = now - to_microseconds(self._older_than)
        page = in_reading(self.alias, lambda: self._next_keys(before))
        limits = {
            entry.key: min(entry.kept_from, before)
            for entry in page
            if entry.kept_from is not None and entry.first < entry.kept_from
        }
        ids = in_reading(self.alias, lambda: self._old_ticks(limits, before))
        if ids:
            rows = ScheduleTick.objects.using(self.alias).filter(pk__in=ids)
            in_transition(self.alias, lambda _: rows.delete())
        if len(ids) < self._step:
            self._advance(page)
        return len(ids)

    def _advance(self, page: Sequence[_Next]) -> None:
        """Continue after these keys next time, or from the first one after the last page."""
        at_end = len(page) < SCHEDULES_AT_ONCE
        self._after = "" if at_end else page[-1].key
        self.round_is_over = self._wrapped and (at_end or self._after >= self._begins)
        self._wrapped = (self._wrapped or at_end) and not self.round_is_over

    def _next_keys(self, before: int) -> list[_Next]:
        connection = connections[self.alias]
        quote = connection.ops.quote_name
        names = {"table": ScheduleTick._meta.db_table, "key": "key", "tick": "tick"}
        keys = _KEYS_BY_GROUPS if connection.vendor == "mysql" else _KEYS_BY_STEPS
        quoted = {name: quote(value) for name, value in names.items()}
        statement = (keys + _NEXT).format(first=_FIRST.format(**quoted), **quoted)
        with connection.cursor() as cursor:
            cursor.execute(statement, (self._after, SCHEDULES_AT_ONCE, before, self._kept - 1))
            return [_Next(*row) for row in cursor.fetchall()]

    def _old_ticks(self, limits: dict[str, int], before: int) -> list[int]:
        rows = ScheduleTick.objects.using(self.alias).filter(decided_at__lt=for_people(before))
        rows = rows.exclude(decision=TickDecision.WAITING).exclude(outcome=TickOutcome.OPEN)
        ids: list[int] = []
        chosen = list(limits.items())
        for start in range(0, len(chosen), KEYS_PER_STATEMENT):
            older = Q()
            for key, limit in chosen[start : start + KEYS_PER_STATEMENT]:
                older |= Q(key=key, tick__lt=limit)
            left = self._step - len(ids)
            ids += rows.filter(older).values_list("pk", flat=True)[:left]
        return ids


def purge_ticks(
    alias: str, now: int, *, older_than: timedelta = KEPT_FOR, kept: int = KEPT, step: int = STEP
) -> int:
    """One step of a purge with a random start; returns how many ticks it deleted."""
    return TickPurge(alias, older_than=older_than, kept=kept, step=step).step(now)


def reset_removed(alias: str, declared: Container[str], now: int) -> int:
    """Reset schedules that are not declared here, and that no scheduler decided for a day.

    Else one that is declared again would make up for all the time in between. Its row stays, as
    it may be paused; without a version it is treated as if its moments had changed.
    """
    rows = ScheduleState.objects.using(alias)
    late = rows.filter(next_due__lt=now - GONE_AFTER)
    keys = in_reading(alias, lambda: list(late.values_list("key", flat=True)))
    gone = [key for key in keys if key not in declared][:STEP]
    if not gone:
        return 0
    # A scheduler that decided one of them meanwhile knows it: the filter leaves that one alone.
    unchanged = late.filter(key__in=gone)
    return in_transition(alias, lambda _: unchanged.update(version="", next_due=None))
