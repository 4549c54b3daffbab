"""Schedules: list them with their ticks, pause and resume them, and run them now."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from django.db.models import Max, OuterRef, Subquery

from django_jobs.backends.home import jobs_database, record, store_now
from django_jobs.clock import to_datetime
from django_jobs.cron import history
from django_jobs.cron.book import Book
from django_jobs.cron.decide import TickVerdict
from django_jobs.cron.history import Recorder, decided_of
from django_jobs.cron.occurrences import next_after
from django_jobs.cron.registry import all_schedules, find
from django_jobs.cron.tick import Preview
from django_jobs.db.clock import for_people
from django_jobs.db.transactions import in_reading, in_transition
from django_jobs.ids import new_id
from django_jobs.models import ScheduleState, ScheduleTick, TickDecision, schedule_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from django_jobs.cron.history import Decided
    from django_jobs.cron.schedule import Schedule

NEXT_RUNS = 5
HISTORY = 100
KEYS_PER_STATEMENT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """A decided tick. ``outcome``: open, succeeded, dead, …; none without a job."""

    name: str
    tick: datetime
    decision: str
    outcome: str
    reason: str
    backend: str
    job_id: str
    decided_at: datetime
    decided_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOverview:
    """A schedule as an operator sees it. ``last`` is its latest tick."""

    schedule: Schedule
    next_runs: tuple[datetime, ...]
    last: TickRecord | None
    paused: bool = False
    paused_by: str = ""
    paused_at: datetime | None = None
    reason: str = ""


def overview_of_schedules(
    *, only: Collection[str] | None = None, runs: int = NEXT_RUNS, using: str | None = None
) -> list[ScheduleOverview]:
    """Every schedule, with its next runs and its last tick; raises UnknownSchedule."""
    alias = using or jobs_database()
    chosen = all_schedules() if only is None else [find(name) for name in only]
    now = store_now(alias)
    keys = [schedule_key(schedule.name) for schedule in chosen]
    rows = ScheduleState.objects.using(alias)
    rows = rows if only is None else rows.filter(key__in=keys)
    states = in_reading(alias, lambda: {row.key: row for row in rows})
    last = _last_ticks(alias, keys, now)
    overviews = []
    for key, schedule in zip(keys, chosen, strict=True):
        state = states.get(key) or ScheduleState(key=key)
        overviews.append(
            ScheduleOverview(
                schedule=schedule,
                next_runs=next_runs(schedule, to_datetime(now), runs),
                last=last.get(key),
                paused=state.paused,
                paused_by=state.paused_by,
                paused_at=state.paused_at,
                reason=state.reason,
            )
        )
    return overviews


def next_runs(schedule: Schedule, after: datetime, count: int) -> tuple[datetime, ...]:
    """The first ``count`` moments after ``after``; fewer where there are no more."""
    runs: list[datetime] = []
    while len(runs) < count and (moment := next_after(schedule, after)) is not None:
        runs.append(moment)
        after = moment
    return tuple(runs)


def schedule_history(
    name: str, *, limit: int = HISTORY, using: str | None = None
) -> list[TickRecord]:
    """The latest ticks of a schedule, the newest first; also of one that was removed."""
    alias = using or jobs_database()
    return _history(alias, schedule_key(name), limit, store_now(alias))


def pause_schedule(
    name: str,
    *,
    by: str,
    reason: str = "",
    using: str | None = None,
    witness: Callable[[], None] | None = None,
) -> bool:
    """Skip the ticks of a schedule until it is resumed; False when it was paused already.

    Jobs that were enqueued still run. A new reason replaces the old one. Raises UnknownSchedule.
    ``witness`` is called in the same transaction if anything changed.
    """
    changes = {"paused": True, "paused_by": by[:150], "reason": reason}
    return _change(name, changes, "pause-schedule", by, reason, using, witness)


def resume_schedule(
    name: str,
    *,
    by: str,
    reason: str = "",
    using: str | None = None,
    witness: Callable[[], None] | None = None,
) -> bool:
    """Resume a schedule; False when it was not paused. Skipped ticks are not made up for."""
    changes = {"paused": False, "paused_by": "", "reason": ""}
    return _change(name, changes, "resume-schedule", by, reason, using, witness)


def run_schedule_now(
    name: str,
    *,
    by: str,
    reason: str = "",
    press: str | None = None,
    using: str | None = None,
    witness: Callable[[], None] | None = None,
) -> Decided:
    """Enqueue a job of a schedule now, as an extra tick; raises UnknownSchedule.

    Gates and a pause do not apply, as an operator asks for it. ``press`` identifies one press
    of the button: a second call with the same one enqueues nothing and returns the same tick.
    """
    alias, schedule = using or jobs_database(), find(name)
    press = press or new_id()

    def work(_: object) -> ScheduleTick:
        row = _pressed(alias, press)
        if row is not None:
            return row
        now = store_now(alias)
        verdict = TickVerdict(TickDecision.PRESSED, reason)
        written = Recorder(alias).write(schedule, now, verdict, now, press=press, by=by)
        if written is None:  # the same press came twice at the same time
            return _pressed(alias, press) or ScheduleTick(name=name, tick=now)
        detail = {"job": str(written.job_id or ""), "decision": written.decision}
        record(alias, "run-schedule", by=by, reason=reason, subject=name, detail=detail)
        if witness is not None:
            witness()
        return written

    # Read after the commit, as a broker gets the job only then and may refuse it.
    return decided_of(in_transition(alias, work))


def preview_tick(
    *,
    only: Collection[str] | None = None,
    at: int | None = None,
    using: str | None = None,
) -> list[Decided]:
    """What a tick would do with each schedule, and why; nothing is enqueued.

    ``at``: the time to assume, in microseconds.
    """
    for name in only or ():
        find(name)
    return Preview(using=using).decisions(only=only, at=at)


def _change(
    name: str,
    changes: dict[str, object],
    action: str,
    by: str,
    reason: str,
    using: str | None,
    witness: Callable[[], None] | None,
) -> bool:
    alias = using or jobs_database()
    find(name)
    # Creates the row of a schedule that no scheduler has seen yet.
    Book(alias).enter(store_now(alias))

    def work(_: object) -> bool:
        rows = ScheduleState.objects.using(alias).select_for_update()
        state = rows.get(key=schedule_key(name))
        changed = state.paused != changes["paused"]
        for field, value in changes.items():
            setattr(state, field, value)
        if changed:
            state.paused_at = for_people(store_now(alias)) if state.paused else None
        state.save(using=alias, update_fields=[*changes, "paused_at"])
        if changed:
            record(alias, action, by=by, reason=reason, subject=name)
            if witness is not None:
                witness()
        return changed

    return in_transition(alias, work)


def _pressed(alias: str, press: str) -> ScheduleTick | None:
    return ScheduleTick.objects.using(alias).filter(press=press).first()


def _history(alias: str, key: str, limit: int, now: int) -> list[TickRecord]:
    rows = ScheduleTick.objects.using(alias).filter(key=key).order_by("-tick")[:limit]
    ticks = in_reading(alias, lambda: list(rows))
    history.settle(alias, ticks, now)
    return [_record_of(row) for row in ticks]


def _last_ticks(alias: str, keys: Sequence[str], now: int) -> dict[str, TickRecord]:
    """The latest tick of each schedule, read for some hundreds of them per statement."""
    ticks: list[ScheduleTick] = []
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        ticks += in_reading(
            alias, partial(_last_of, alias, keys[start : start + KEYS_PER_STATEMENT])
        )
    history.settle(alias, ticks, now)
    return {row.key: _record_of(row) for row in ticks}


def _last_of(alias: str, keys: Sequence[str]) -> list[ScheduleTick]:
    rows = ScheduleTick.objects.using(alias)
    # One index lookup for each schedule, however many ticks it has.
    ticks = ScheduleTick.objects.filter(key=OuterRef("key")).order_by("-tick")
    states = ScheduleState.objects.using(alias).filter(key__in=keys)
    last = dict(states.annotate(last=Subquery(ticks.values("pk")[:1])).values_list("key", "last"))
    # A schedule that no scheduler has seen yet has only the ticks that operators asked for.
    pressed = rows.filter(key__in=[key for key in keys if key not in last])
    last.update(pressed.values("key").annotate(last=Max("pk")).values_list("key", "last"))
    return list(rows.filter(pk__in=[pk for pk in last.values() if pk is not None]))


def _record_of(row: ScheduleTick) -> TickRecord:
    return TickRecord(
        name=row.name,
        tick=to_datetime(row.tick),
        decision=row.decision,
        outcome=row.outcome,
        reason=row.reason,
        backend=row.backend,
        job_id=str(row.job_id or ""),
        decided_at=row.decided_at,
        decided_by=row.decided_by,
    )
