"""The rows of ticks, written where their jobs are enqueued."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from django.db import Error, IntegrityError, connections, transaction
from django.db.models import Max, Min, Q

from django_jobs.backends.base import Inspects
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
    from django_jobs.cron.decide import Verdict
    from django_jobs.cron.schedule import Schedule
    from django_jobs.enqueue import PreparedJob


UNDECIDED = "undecided"
"""Of a tick that has to wait until a dependency is decided; no row says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided, or would be, for one tick."""

    name: str
    tick: datetime
    decision: str
    reason: str = ""
    job_id: str = ""


class Recorder:
    """Writes ticks. ``in_child`` is given the jobs that would run where they are enqueued."""

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
        verdict: Verdict,
        now: int,
        press: str | None = None,
        by: str = "",
    ) -> ScheduleTick | None:
        """The row of a tick, and its job; None when somebody was first.

        What became of the job is known when the transaction is over: a broker is told after
        the commit, and when it refuses, the row says so.
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
            self.give_job(schedule, row)
        return row

    def give_job(self, schedule: Schedule, row: ScheduleTick) -> None:
        try:
            with transaction.atomic(using=self.alias):
                job = enqueue.prepared(schedule, row.tick)
                row.job_id = job.id
                row.backend = job.plan.resolve()[0].alias
                row.outcome = TickOutcome.OPEN
                row.save(using=self.alias)
                enqueue.hand_over(
                    self.alias,
                    row,
                    job,
                    self._in_child,
                )
        except Exception as error:
            if isinstance(error, Error) and (is_connection_lost(error) or is_conflict(error)):
                raise
            enqueue.failed(self.alias, row, error)


def locked(alias: str, model: Any) -> Any:
    """Rows to be held until the end of the transaction; those that others hold are left out."""
    features = connections[alias].features
    rows = model.objects.using(alias)
    if not features.has_select_for_update:
        return rows  # the transaction holds the whole database
    return rows.select_for_update(skip_locked=features.has_select_for_update_skip_locked)


def of_row(row: ScheduleTick) -> Decided:
    """What a row tells, as it is now."""
    return Decided(
        name=row.name,
        tick=to_datetime(row.tick),
        decision=str(row.decision),
        reason=row.reason,
        job_id=str(row.job_id or ""),
    )


def told(row: ScheduleTick) -> Decided:
    """Tell the world, when it is committed and a broker has had its say."""
    one = of_row(row)
    events.emit(
        events.TickDecided(
            schedule=one.name,
            decision=one.decision,
            reason=one.reason,
            job_id=one.job_id,
            tick=one.tick.isoformat(),
        )
    )
    return one


# How the jobs of ticks ended, written down before their results are forgotten.


AT_ONCE = 500
LOST_AFTER_SECONDS = 300
"""A job that left no trace is given so long: it may be on its way to a broker."""


def settle(alias: str, ticks: Sequence[ScheduleTick], now: int) -> None:
    """Bring the outcomes of ticks up to date that were open when they were read."""
    by_backend: dict[str, list[ScheduleTick]] = {}
    for tick in ticks:
        if tick.outcome == TickOutcome.OPEN:
            by_backend.setdefault(tick.backend, []).append(tick)
    for name, some in by_backend.items():
        for start in range(0, len(some), AT_ONCE):
            _settle(alias, name, some[start : start + AT_ONCE], now)


def _settle(alias: str, name: str, ticks: Sequence[ScheduleTick], now: int) -> None:
    # Since it was decided, for a tick that was made up for is older than its job.
    long_ago = for_people(now - LOST_AFTER_SECONDS * SECOND)
    long_hence = for_people(now + LOST_AFTER_SECONDS * SECOND)  # by a clock that was ahead
    found = _endings(alias, name, [tick.job_id for tick in ticks if tick.job_id])
    by_outcome: dict[str, list[int]] = {}
    for tick in ticks:
        ended = found.get(tick.job_id) if tick.job_id else TickOutcome.UNKNOWN
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
    """Goes round the open ticks of all schedules, in bounded steps, for the housekeeping.

    It goes on behind the last one it saw: there may be more that stay open for long than
    one step takes, and those behind them have their turn too. Where it begins is up to
    chance, as who ticks from a crontab is another process each time.
    """

    def __init__(self, alias: str, limit: int = AT_ONCE) -> None:
        self._alias = alias
        self._limit = limit
        self._last: int | None = None

    def step(self, now: int) -> None:
        """Settle the next of them."""
        rows = ScheduleTick.objects.using(self._alias).filter(outcome=TickOutcome.OPEN)
        rows = rows.order_by("id")
        if self._last is None:
            self._last = _any_before_the_end(rows, self._limit)
        found = list(rows.filter(id__gt=self._last)[: self._limit])
        if left := self._limit - len(found):
            found += rows.filter(id__lte=self._last)[:left]
        if found:
            self._last = found[-1].pk
        settle(self._alias, found, now)


def _any_before_the_end(rows: QuerySet[ScheduleTick], limit: int) -> int:
    if not rows[limit : limit + 1]:
        return 0  # one step takes them all
    ends = rows.aggregate(first=Min("id"), last=Max("id"))
    return random.randint(ends["first"], ends["last"])  # noqa: S311 - spreads load, hides nothing


def _endings(alias: str, name: str, ids: list[UUID]) -> dict[UUID, str]:
    """What is known of jobs of a backend, as outcomes of ticks."""
    try:
        backend = backends[name]
    except InvalidBackend:  # it is not configured any more
        return dict.fromkeys(ids, TickOutcome.UNKNOWN)
    home = outbox_database(get_settings(), name)
    try:
        found = _waiting(home, name, ids) | _outcomes(backend, ids)
    except (BackendUnavailable, OSError):
        return dict.fromkeys(ids, TickOutcome.OPEN)  # it cannot be asked: all is as it was
    except Error:
        if backend.home == alias:
            raise
        return dict.fromkeys(ids, TickOutcome.OPEN)  # as above
    # What its outbox refused is a dead letter there, and those of a broker are in some database.
    for place in {home or alias, backend.home or alias} - {backend.home}:
        dead = FailedJob.objects.using(place).filter(job_id__in=ids, backend=name)
        found.update(dict.fromkeys(dead.values_list("job_id", flat=True), TickOutcome.DEAD))
    if home is None and backend.joins(alias):
        # Its row and that of its tick came in one transaction: it was there, and has ended.
        found = dict.fromkeys(ids, TickOutcome.UNKNOWN) | found
    return found


def _waiting(home: str | None, name: str, ids: list[UUID]) -> dict[UUID, str]:
    """Those in the outbox. They are looked for first: from there they go on, and never back."""
    if home is None:
        return {}
    rows = OutboxJob.objects.using(home).filter(backend=name, job_id__in=ids)
    return dict.fromkeys(rows.values_list("job_id", flat=True), TickOutcome.OPEN)


def _outcomes(backend: Backend, ids: list[UUID]) -> dict[UUID, str]:
    if not isinstance(backend, Inspects):
        return {}
    found = backend.outcomes(list(map(str, ids)))
    return {UUID(job_id): ended or TickOutcome.OPEN for job_id, ended in found.items()}


# Old ticks are forgotten, save the latest of each schedule; so is how far gone ones had come.


KEPT = 100
"""So many ticks of each schedule are kept, however old."""
KEPT_FOR = timedelta(days=30)
STEP = 1000
SCHEDULES_AT_ONCE = 500
KEYS_PER_STATEMENT = 50
PAGES = 2
"""So many statements, each for some schedules, look for old ticks in one step."""
GONE_AFTER = 86_400 * SECOND
"""For so long newer code may be about to decide what this code does not know."""

_KEYS_BY_STEPS = """
WITH RECURSIVE found (one, place) AS (
    SELECT MIN({key}), 1 FROM {table} WHERE {key} > %s
    UNION ALL
    SELECT (SELECT MIN({key}) FROM {table} WHERE {key} > found.one), found.place + 1
    FROM found WHERE found.one IS NOT NULL AND found.place < %s
)
"""
# MariaDB and MySQL skip from key to key by themselves, and read a subquery from its start.
_KEYS_BY_GROUPS = """
WITH found (one) AS (
    SELECT {key} FROM {table} WHERE {key} > %s GROUP BY {key} ORDER BY {key} LIMIT %s
)
"""
# The next schedules, the oldest tick of each, and that of the latest ones that is kept as the
# oldest; NULL where there are not so many.
_NEXT = """
SELECT one, {first}, CASE WHEN {first} < %s THEN
    (SELECT {tick} FROM {table} WHERE {key} = found.one
     ORDER BY {key} DESC, {tick} DESC LIMIT 1 OFFSET %s)
END
FROM found WHERE one IS NOT NULL ORDER BY one
"""
_FIRST = "(SELECT {tick} FROM {table} WHERE {key} = found.one ORDER BY {key}, {tick} LIMIT 1)"


class _Next(NamedTuple):
    key: str
    first: int
    kept_from: int | None


class TickPurge:
    """Goes round the schedules and deletes their old ticks, save the latest, in bounded steps.

    What is kept is not read, and so hides nothing that is old. It begins anywhere, as a crontab
    starts another process each time. What waits, and what has a live job, stays.
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
        """Delete at most ``step`` ticks of the next schedules; how many it were."""
        self.round_is_over = False
        for _ in range(PAGES):
            if gone := self._page(now):
                return gone
            if self.round_is_over:
                break
        return 0

    def _page(self, now: int) -> int:
        before = now - to_microseconds(self._older_than)
        found = in_reading(self.alias, lambda: self._next_keys(before))
        limits = {
            one.key: min(one.kept_from, before)
            for one in found
            if one.kept_from is not None and one.first < one.kept_from
        }
        doomed = in_reading(self.alias, lambda: self._doomed(limits, before))
        if doomed:
            rows = ScheduleTick.objects.using(self.alias).filter(pk__in=doomed)
            in_transition(self.alias, lambda _: rows.delete())
        if len(doomed) < self._step:
            self._go_on(found)
        return len(doomed)

    def _go_on(self, found: Sequence[_Next]) -> None:
        """Behind those keys next time; from the first one again when there were no more."""
        at_end = len(found) < SCHEDULES_AT_ONCE
        self._after = "" if at_end else found[-1].key
        self.round_is_over = self._wrapped and (at_end or self._after >= self._begins)
        self._wrapped = (self._wrapped or at_end) and not self.round_is_over

    def _next_keys(self, before: int) -> list[_Next]:
        connection = connections[self.alias]
        quote = connection.ops.quote_name
        names = {"table": ScheduleTick._meta.db_table, "key": "key", "tick": "tick"}
        keys = _KEYS_BY_GROUPS if connection.vendor == "mysql" else _KEYS_BY_STEPS
        quoted = {name: quote(one) for name, one in names.items()}
        statement = (keys + _NEXT).format(first=_FIRST.format(**quoted), **quoted)
        with connection.cursor() as cursor:
            cursor.execute(statement, (self._after, SCHEDULES_AT_ONCE, before, self._kept - 1))
            return [_Next(*row) for row in cursor.fetchall()]

    def _doomed(self, limits: dict[str, int], before: int) -> list[int]:
        rows = ScheduleTick.objects.using(self.alias).filter(decided_at__lt=for_people(before))
        rows = rows.exclude(decision=TickDecision.WAITING).exclude(outcome=TickOutcome.OPEN)
        doomed: list[int] = []
        chosen = list(limits.items())
        for start in range(0, len(chosen), KEYS_PER_STATEMENT):
            older = Q()
            for key, limit in chosen[start : start + KEYS_PER_STATEMENT]:
                older |= Q(key=key, tick__lt=limit)
            left = self._step - len(doomed)
            doomed += rows.filter(older).values_list("pk", flat=True)[:left]
        return doomed


def purge_ticks(
    alias: str, now: int, *, older_than: timedelta = KEPT_FOR, kept: int = KEPT, step: int = STEP
) -> int:
    """One step of a purge that begins anywhere; how many ticks it deleted."""
    return TickPurge(alias, older_than=older_than, kept=kept, step=step).step(now)


def forget_the_gone(alias: str, known: Container[str], now: int) -> int:
    """Let schedules that nobody decided for a day, and that are not known here, begin anew.

    One that is declared again would make up for all the time that it was not there. Its row
    stays, as it may be paused; without a version it is as if its moments had changed.
    """
    rows = ScheduleState.objects.using(alias)
    late = rows.filter(next_due__lt=now - GONE_AFTER)
    keys = in_reading(alias, lambda: list(late.values_list("key", flat=True)))
    gone = [key for key in keys if key not in known][:STEP]
    if not gone:
        return 0
    # Whoever decided one of them meanwhile knows it.
    found = late.filter(key__in=gone)
    return in_transition(alias, lambda _: found.update(version="", next_due=None))
