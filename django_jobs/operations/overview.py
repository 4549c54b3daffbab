"""The state of the queues, their live jobs and their recent counts, for the admin and commands.

The cost of the overview does not grow with the number of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from django.db.models import F, Sum

from django_jobs.backends.database.counts import (
    Band,
    bands,
    counts,
    keys_of_suspects,
    open_dead_letters,
    queues_of_open_dead_letters,
    suspects,
)
from django_jobs.backends.database.unreadable import of_known_kinds
from django_jobs.backends.home import jobs_database, moments
from django_jobs.backends.limits import UNLIMITED
from django_jobs.backends.rates import Rate, Usage
from django_jobs.clock import SECOND, to_datetime
from django_jobs.conf import get_settings
from django_jobs.db.minutes import MINUTE
from django_jobs.models import Job, JobState, QueueControl, QueueMeter, QueueMinute
from django_jobs.operations.brokers import (
    OpenBreaker,
    brokers,
    open_breakers,
    queues_of_brokers,
    stats_of,
)
from django_jobs.routers import database_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from django.db.models import QuerySet


COUNTED_AT_MOST = 10_000
_Key = tuple[str, str]
_Rows = dict[_Key, "QueueOverview"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """The state of one queue of one backend.

    ``blocked``: due, but other jobs hold their key. ``dead``: open dead letters.
    ``breaker``: ``open`` or ``half-open``, or empty. ``problem``: why its backend could
    not be asked. ``rate``: the limit in force, and ``used`` how much of it is used up, where
    the database counts that. ``at_least``: the names of the counts that stopped at the maximum.
    """

    backend: str
    queue: str
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    blocked: int = 0
    suspect: int = 0
    dead: int = 0
    oldest_ready_seconds: float = 0.0
    paused: bool = False
    paused_reason: str = ""
    breaker: str = ""
    problem: str = ""
    rate: str = ""
    used: int | None = None
    concurrency: int | None = None
    at_least: tuple[str, ...] = ()

    def shown(self, name: str) -> str:
        """A count for people, with a plus if counting stopped early."""
        more = "+" if name in self.at_least else ""
        return f"{getattr(self, name):,}{more}"


class LiveOverview(NamedTuple):
    """Queues, and how many more that hold jobs or dead letters were left out."""

    queues: list[QueueOverview]
    more: int = 0


def overview(most: int = COUNTED_AT_MOST) -> list[QueueOverview]:
    """Every queue that holds anything, is configured, or has settings by an operator.

    No count goes beyond ``most``.
    """
    return overview_of_some(most, at=moments(), breakers=open_breakers()).queues


def overview_of_some(
    most: int,
    *,
    at: Mapping[str, int],
    breakers: Sequence[OpenBreaker],
    queues_at_most: int | None = None,
) -> LiveOverview:
    """As ``overview``, but of each database at most ``queues_at_most``, the first by name.

    Queues that are configured, or have settings by an operator, are always included, and
    leaving out others does not change the figures of a queue. ``at``: the current time of
    each database. ``breakers``: the open ones.
    """
    rows: _Rows = {}
    settings = get_settings()
    for queue in settings.queues:
        _row(rows, (settings.backend_for(queue), queue))
    for key in queues_of_brokers():
        _row(rows, key)
    _add_breakers(rows, breakers)
    for alias in at:
        _add_controls(rows, alias)
    always, more = {queue for _, queue in rows}, 0
    for alias, now in at.items():
        shown, left_out = _chosen(alias, always, queues_at_most)
        _add_jobs(rows, alias, now, most, shown)
        _add_letters(rows, alias, most, shown)
        _add_rates(rows, alias, now)
        more += left_out
    outside = brokers()
    queues = [_with_stats(row) if key[0] in outside else row for key, row in sorted(rows.items())]
    return LiveOverview(queues, more)


def _row(rows: _Rows, key: _Key) -> QueueOverview:
    return rows.setdefault(key, QueueOverview(backend=key[0], queue=key[1]))


def _add(rows: _Rows, key: _Key, name: str, count: int, *, at_least: bool) -> None:
    row = _row(rows, key)
    stopped = (name,) if at_least else ()
    changes: dict[str, Any] = {name: count, "at_least": (*row.at_least, *stopped)}
    rows[key] = replace(row, **changes)


class _Shown(NamedTuple):
    """The queues of a database to count: those with jobs, and those with dead letters."""

    jobs: list[Band]
    letters: list[str]


def _chosen(alias: str, always: Collection[str], at_most: int | None) -> tuple[_Shown, int]:
    """The queues to count, the same for jobs and dead letters, and how many are left out."""
    jobs, letters = bands(alias), queues_of_open_dead_letters(alias)
    names = {band.queue for band in jobs} | set(letters)
    others = sorted(names.difference(always))
    room = len(others) if at_most is None else max(at_most - len(always), 0)
    out = set(others[room:])
    of_jobs = [band for band in jobs if band.queue not in out]
    return _Shown(of_jobs, [name for name in letters if name not in out]), len(out)


def _add_jobs(rows: _Rows, alias: str, now: int, most: int, shown: _Shown) -> None:
    for count in counts(alias, shown.jobs, most):
        key = count.backend, count.queue
        _add(rows, key, JobState(count.state).label, count.jobs, at_least=count.at_least)
        if count.state == JobState.READY and count.oldest is not None:
            age = max(now - count.oldest, 0) / SECOND
            rows[key] = replace(rows[key], oldest_ready_seconds=age)
    suspicious, queues = suspects(alias, most), {band.queue for band in shown.jobs}
    more = suspicious.total() >= most
    for key, number in suspicious.items():
        if key[1] in queues:
            _add(rows, key, "suspect", number, at_least=more)


def _add_letters(rows: _Rows, alias: str, most: int, shown: _Shown) -> None:
    for dead in open_dead_letters(alias, shown.letters, most):
        _add(rows, (dead.backend, dead.queue), "dead", dead.letters, at_least=dead.at_least)


def _add_controls(rows: _Rows, alias: str) -> None:
    for control in QueueControl.objects.using(alias):
        key = control.backend, control.queue
        rows[key] = replace(
            _row(rows, key),
            paused=control.paused,
            paused_reason=control.reason if control.paused else "",
            rate=control.rate_limit,
            concurrency=control.concurrency,
        )


def _add_rates(rows: _Rows, alias: str, now: int) -> None:
    meters = QueueMeter.objects.using(alias)
    starts = {(meter.backend, meter.queue): meter.starts for meter in meters}
    outside = brokers()
    for key in [key for key in rows if _home(key[0]) == alias]:
        rows[key] = _with_rate(rows[key], starts.get(key), now, counted=key[0] not in outside)


def _add_breakers(rows: _Rows, breakers: Sequence[OpenBreaker]) -> None:
    for breaker in breakers:
        if breaker.kind == "queue":
            key = breaker.backend, breaker.name
            rows[key] = replace(_row(rows, key), breaker=breaker.state)


def _home(backend: str) -> str:
    """The database with the settings of a backend's queues."""
    config = get_settings().backends.get(backend)
    return (config and database_of(config)) or jobs_database()


def _with_rate(row: QueueOverview, starts: object, now: int, *, counted: bool) -> QueueOverview:
    configured = get_settings().queues.get(row.queue)
    text = row.rate or (configured and configured.rate_limit) or ""
    if not text or text == UNLIMITED:
        return replace(row, rate="", used=None)
    if not counted:
        return replace(row, rate=text, used=None)
    try:
        rate = Rate.parse(text)
    except ValueError:  # not written by our operations; workers will log it
        return replace(row, rate=text)
    return replace(row, rate=text, used=rate.limit - Usage.read(rate, starts, now).free())


def _with_stats(row: QueueOverview) -> QueueOverview:
    """Add what a backend outside the database answers for its queue."""
    stats = stats_of(row.backend, row.queue)
    if isinstance(stats, str):
        return replace(row, problem=stats)
    return replace(
        row,
        ready=stats.ready,
        scheduled=stats.scheduled,
        running=stats.running,
        blocked=stats.blocked,
        suspect=stats.suspect,
        oldest_ready_seconds=stats.oldest_ready_seconds,
        at_least=(*row.at_least, *stats.at_least),
    )


# Live jobs, one by one.


LiveState = Literal["scheduled", "ready", "running", "blocked", "suspect"]
SUSPECTS_AT_MOST = 10_000
_STATES = {state.label: state for state in JobState}


def live(
    queue: str | None = None,
    handler: str | None = None,
    state: LiveState | None = None,
    *,
    using: str | None = None,
) -> QuerySet[Job]:
    """Live jobs in the order in which they are due; raises ValueError for an unknown state.

    Suspects come from an index without any other column, so at most SUSPECTS_AT_MOST that
    wait and as many that run are looked at.
    """
    jobs = Job.objects.using(using or jobs_database())
    if state == "suspect":
        jobs = jobs.filter(pk__in=keys_of_suspects(jobs.db, SUSPECTS_AT_MOST))
    elif state is not None:
        if state not in _STATES:
            raise ValueError(f"there is no state {state!r}; use {', '.join(_STATES)} or suspect")
        jobs = jobs.filter(state=_STATES[state])
    if queue is not None:
        jobs = jobs.filter(queue=queue)
    if handler is not None:
        jobs = jobs.filter(handler=handler)
    return of_known_kinds(jobs).order_by("queue", "state", "rank", "due", "id")


# What workers did lately, from the counts that they keep by the minute.


@dataclass(slots=True)
class Counts:
    """How many runs ended well, failed with a retry to come, or ended in a dead letter."""

    succeeded: int = 0
    retried: int = 0
    dead: int = 0

    @property
    def total(self) -> int:
        return self.succeeded + self.retried + self.dead

    def add(self, other: Counts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Counts in slots of equal length, the first at ``begins``; the last is still under way."""

    begins: datetime
    slot_minutes: int
    slots: Sequence[Counts]

    @property
    def total(self) -> Counts:
        total = Counts()
        for slot in self.slots:
            total.add(slot)
        return total

    def by(self, count: int) -> Series:
        """The same in fewer slots, of ``count`` each."""
        grouped = []
        for first in range(0, len(self.slots), count):
            group = Counts()
            for slot in self.slots[first : first + count]:
                group.add(slot)
            grouped.append(group)
        return Series(
            begins=self.begins, slot_minutes=self.slot_minutes * count, slots=tuple(grouped)
        )


def series(slots: int, slot_minutes: int, at: Mapping[str, int] | None = None) -> Series:
    """The counts of all queues together. ``at``: the current time of each database, if read."""
    counts = [Counts() for _ in range(slots)]
    begins = 0
    for alias, moment in (at or moments()).items():
        now = moment // MINUTE
        first = now - now % slot_minutes - (slots - 1) * slot_minutes
        begins = begins or first
        rows = QueueMinute.objects.using(alias).filter(minute__gte=first, minute__lte=now)
        rows = rows.annotate(slot=(F("minute") - first) - (F("minute") - first) % slot_minutes)
        for slot, *sums in rows.values_list("slot").annotate(
            Sum("succeeded"), Sum("retried"), Sum("dead")
        ):
            counts[int(slot) // slot_minutes].add(Counts(*map(int, sums)))
    return Series(
        begins=to_datetime(begins * 60 * SECOND), slot_minutes=slot_minutes, slots=tuple(counts)
    )


def by_queue(minutes: int, at: Mapping[str, int] | None = None) -> dict[tuple[str, str], Counts]:
    """The counts of the last minutes of each queue, by backend and name."""
    counts: dict[tuple[str, str], Counts] = {}
    for alias, moment in (at or moments()).items():
        first = moment // MINUTE - minutes
        rows = QueueMinute.objects.using(alias).filter(minute__gt=first).order_by()
        for backend, queue, *sums in rows.values_list("backend", "queue").annotate(
            Sum("succeeded"), Sum("retried"), Sum("dead")
        ):
            counts[backend, queue] = Counts(*map(int, sums))
    return counts
