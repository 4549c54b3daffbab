"""How the queues stand, at a price that does not grow with what is in them."""

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
_Found = dict[_Key, "QueueOverview"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """How one queue of one backend stands.

    ``blocked``: due, but a key that they share is held by others. ``dead``: open dead letters.
    ``breaker``: ``open`` or ``half-open``, or nothing. ``problem``: why its backend could
    not be asked. ``rate``: the limit that holds, and ``used`` how much of it is, where the
    database counts that. ``at_least``: the names of the counts that stop where counting did.
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
        """A count for people: one that stopped early with a plus."""
        more = "+" if name in self.at_least else ""
        return f"{getattr(self, name):,}{more}"


class Overview(NamedTuple):
    """How queues stand, and how many more hold something and are not among them."""

    queues: list[QueueOverview]
    more: int = 0


def overview(most: int = COUNTED_AT_MOST) -> list[QueueOverview]:
    """Every queue that has something in it, is configured, or for which something was set.

    Nothing is counted further than to ``most``.
    """
    return overview_of_some(most, at=moments(), breakers=open_breakers()).queues


def overview_of_some(
    most: int,
    *,
    at: Mapping[str, int],
    breakers: Sequence[OpenBreaker],
    queues_at_most: int | None = None,
) -> Overview:
    """As ``overview``, with the first queues by name where a database has more than so many.

    Those that are configured, or for which something was set, are there in any case, and
    what is said of a queue is right whether others were left out or not. ``at``: what time it
    is in each database, and ``breakers``: those that are open.
    """
    found: _Found = {}
    settings = get_settings()
    for queue in settings.queues:
        _known(found, (settings.backend_for(queue), queue))
    for key in queues_of_brokers():
        _known(found, key)
    _add_breakers(found, breakers)
    for alias in at:
        _add_controls(found, alias)
    always, more = {queue for _, queue in found}, 0
    for alias, now in at.items():
        shown, left_out = _chosen(alias, always, queues_at_most)
        _add_jobs(found, alias, now, most, shown)
        _add_letters(found, alias, most, shown)
        _add_rates(found, alias, now)
        more += left_out
    asked = brokers()
    queues = [_asked(known) if key[0] in asked else known for key, known in sorted(found.items())]
    return Overview(queues, more)


def _known(found: _Found, key: _Key) -> QueueOverview:
    return found.setdefault(key, QueueOverview(backend=key[0], queue=key[1]))


def _add(found: _Found, key: _Key, name: str, count: int, *, at_least: bool) -> None:
    known = _known(found, key)
    stopped = (name,) if at_least else ()
    told: dict[str, Any] = {name: count, "at_least": (*known.at_least, *stopped)}
    found[key] = replace(known, **told)


class _Shown(NamedTuple):
    """What a database has of the queues that are looked at, with jobs and with letters."""

    jobs: list[Band]
    letters: list[str]


def _chosen(alias: str, always: Collection[str], at_most: int | None) -> tuple[_Shown, int]:
    """The queues to count, the same for jobs and for letters; and how many are left out."""
    jobs, letters = bands(alias), queues_of_open_dead_letters(alias)
    names = {band.queue for band in jobs} | set(letters)
    others = sorted(names.difference(always))
    room = len(others) if at_most is None else max(at_most - len(always), 0)
    out = set(others[room:])
    of_jobs = [band for band in jobs if band.queue not in out]
    return _Shown(of_jobs, [name for name in letters if name not in out]), len(out)


def _add_jobs(found: _Found, alias: str, now: int, most: int, shown: _Shown) -> None:
    for count in counts(alias, shown.jobs, most):
        key = count.backend, count.queue
        _add(found, key, JobState(count.state).label, count.jobs, at_least=count.at_least)
        if count.state == JobState.READY and count.oldest is not None:
            age = max(now - count.oldest, 0) / SECOND
            found[key] = replace(found[key], oldest_ready_seconds=age)
    suspicious, queues = suspects(alias, most), {band.queue for band in shown.jobs}
    more = suspicious.total() >= most
    for key, number in suspicious.items():
        if key[1] in queues:
            _add(found, key, "suspect", number, at_least=more)


def _add_letters(found: _Found, alias: str, most: int, shown: _Shown) -> None:
    for dead in open_dead_letters(alias, shown.letters, most):
        _add(found, (dead.backend, dead.queue), "dead", dead.letters, at_least=dead.at_least)


def _add_controls(found: _Found, alias: str) -> None:
    for control in QueueControl.objects.using(alias):
        key = control.backend, control.queue
        found[key] = replace(
            _known(found, key),
            paused=control.paused,
            paused_reason=control.reason if control.paused else "",
            rate=control.rate_limit,
            concurrency=control.concurrency,
        )


def _add_rates(found: _Found, alias: str, now: int) -> None:
    meters = {(x.backend, x.queue): x.told for x in QueueMeter.objects.using(alias)}
    asked = brokers()
    for key in [key for key in found if _home(key[0]) == alias]:
        found[key] = _with_rate(found[key], meters.get(key), now, counted=key[0] not in asked)


def _add_breakers(found: _Found, breakers: Sequence[OpenBreaker]) -> None:
    for breaker in breakers:
        if breaker.kind == "queue":
            key = breaker.backend, breaker.name
            found[key] = replace(_known(found, key), breaker=breaker.state)


def _home(backend: str) -> str:
    """Where the settings of a backend's queues are."""
    config = get_settings().backends.get(backend)
    return (config and database_of(config)) or jobs_database()


def _with_rate(known: QueueOverview, told: object, now: int, *, counted: bool) -> QueueOverview:
    configured = get_settings().queues.get(known.queue)
    text = known.rate or (configured and configured.rate_limit) or ""
    if not text or text == UNLIMITED:
        return replace(known, rate="", used=None)
    if not counted:
        return replace(known, rate=text, used=None)
    try:
        rate = Rate.parse(text)
    except ValueError:  # somebody wrote it past the operations; workers will say so
        return replace(known, rate=text)
    return replace(known, rate=text, used=rate.limit - Usage.read(rate, told, now).free())


def _asked(known: QueueOverview) -> QueueOverview:
    """What a backend outside the database says of its queue."""
    stats = stats_of(known.backend, known.queue)
    if isinstance(stats, str):
        return replace(known, problem=stats)
    return replace(
        known,
        ready=stats.ready,
        scheduled=stats.scheduled,
        running=stats.running,
        blocked=stats.blocked,
        suspect=stats.suspect,
        oldest_ready_seconds=stats.oldest_ready_seconds,
        at_least=(*known.at_least, *stats.at_least),
    )


# Live jobs: what waits and runs, one by one.


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

    Suspects are found by an index that knows nothing else of them: at most SUSPECTS_AT_MOST
    that wait, and as many that run.
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


# What workers did in the last hour and day, from the counts that they add up by the minute.


@dataclass(slots=True)
class Counts:
    """How many runs ended how: well, badly with a retry to come, or with a dead letter."""

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
    """Counts in slots of equal length; the last one is under way. ``begins`` is the first's."""

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
    """All queues together. ``at``: the moments of the databases, where they are known."""
    counts = [Counts() for _ in range(slots)]
    begins = 0
    for alias, moment in (at or moments()).items():
        now = moment // MINUTE
        first = now - now % slot_minutes - (slots - 1) * slot_minutes
        begins = begins or first
        rows = QueueMinute.objects.using(alias).filter(minute__gte=first, minute__lte=now)
        rows = rows.annotate(slot=(F("minute") - first) - (F("minute") - first) % slot_minutes)
        for slot, *told in rows.values_list("slot").annotate(
            Sum("succeeded"), Sum("retried"), Sum("dead")
        ):
            counts[int(slot) // slot_minutes].add(Counts(*map(int, told)))
    return Series(
        begins=to_datetime(begins * 60 * SECOND), slot_minutes=slot_minutes, slots=tuple(counts)
    )


def by_queue(minutes: int, at: Mapping[str, int] | None = None) -> dict[tuple[str, str], Counts]:
    """The last minutes of each queue, by backend and name."""
    found: dict[tuple[str, str], Counts] = {}
    for alias, moment in (at or moments()).items():
        first = moment // MINUTE - minutes
        rows = QueueMinute.objects.using(alias).filter(minute__gt=first).order_by()
        for backend, queue, *told in rows.values_list("backend", "queue").annotate(
            Sum("succeeded"), Sum("retried"), Sum("dead")
        ):
            found[backend, queue] = Counts(*map(int, told))
    return found
