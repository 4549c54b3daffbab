"""How the jobs of ticks ended, written down before their results are forgotten."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from django.db import Error
from django.db.models import Max, Min

from django_jobs import outbox
from django_jobs.backends.database.backend import DatabaseBackend
from django_jobs.backends.database.rows import for_people
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.cron.enqueueing import runs_at_enqueue
from django_jobs.exceptions import BackendUnavailable, InvalidBackend
from django_jobs.models import (
    FailedJob,
    Job,
    JobResult,
    OutboxJob,
    ScheduleTick,
    TickOutcome,
)
from django_jobs.routers import outbox_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from django.db.models import QuerySet

    from django_jobs.backends.base import Backend

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
    try:
        if isinstance(backend, DatabaseBackend):
            return _endings_in_tables(alias, backend, ids)
        found = _endings_at_broker(backend, ids)
    except (BackendUnavailable, OSError):
        return dict.fromkeys(ids, TickOutcome.OPEN)  # it cannot be asked: all is as it was
    except Error:
        if isinstance(backend, DatabaseBackend) and backend.database == alias:
            raise
        return dict.fromkeys(ids, TickOutcome.OPEN)  # as above
    dead = FailedJob.objects.using(alias).filter(job_id__in=ids, backend=name)
    found.update(dict.fromkeys(dead.values_list("job_id", flat=True), TickOutcome.DEAD))
    return found


def _endings_at_broker(backend: Backend, ids: list[UUID]) -> dict[UUID, str]:
    found: dict[UUID, str] = {}
    for job_id in ids:
        ended = _result(backend, job_id)
        if ended is None and _lives(backend, job_id):
            ended = TickOutcome.OPEN
        # It may have ended between the first look and the second.
        ended = ended or _result(backend, job_id)
        if ended is not None:
            found[job_id] = ended
    return found


def _result(backend: Backend, job_id: UUID) -> str | None:
    ended = backend.result(str(job_id)) if backend.capabilities.results else None
    return None if ended is None else ended.status


def _lives(backend: Backend, job_id: UUID) -> bool:
    # The outbox first: from there it goes to the broker, and never back.
    return outbox.find(backend.alias, str(job_id)) is not None or (
        backend.capabilities.peek and backend.find(str(job_id)) is not None
    )


def _endings_in_tables(alias: str, backend: DatabaseBackend, ids: list[UUID]) -> dict[UUID, str]:
    # The live ones first: what is not among them has ended, and its end can be seen.
    database, name = backend.database, backend.alias
    home = outbox_database(get_settings(), name)
    waiting: Iterable[UUID] = ()
    if home is not None:
        rows = OutboxJob.objects.using(home).filter(backend=name, job_id__in=ids)
        waiting = list(rows.values_list("job_id", flat=True))
    live = Job.objects.using(database).filter(pk__in=ids).values_list("pk", flat=True)
    found: dict[UUID, str] = dict.fromkeys([*waiting, *live], TickOutcome.OPEN)
    gone = [job_id for job_id in ids if job_id not in found]
    if not gone:
        return found
    if database == alias and home is None and not runs_at_enqueue(backend):
        # Its row and that of its tick came in one transaction: it was there, and has ended.
        found.update(dict.fromkeys(gone, TickOutcome.UNKNOWN))
    results = JobResult.objects.using(database).filter(pk__in=gone)
    found.update(results.values_list("pk", "status"))
    for one in {database, home or database}:  # what its outbox refused is a dead letter there
        dead = FailedJob.objects.using(one).filter(job_id__in=gone, backend=name)
        found.update(dict.fromkeys(dead.values_list("job_id", flat=True), TickOutcome.DEAD))
    return found
