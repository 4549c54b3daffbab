"""Old ticks are forgotten, save the latest of each schedule; so is how far gone ones had come."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from django.db import connections
from django.db.models import Q

from django_jobs.backends.database.rows import for_people
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.db.transactions import in_reading, in_transition
from django_jobs.models import ScheduleState, ScheduleTick, TickDecision, TickOutcome

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

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
