"""How commands show schedules and what was decided for their ticks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django_jobs.cron.describe import in_words
from django_jobs.cron.zones import zone_of
from django_jobs.management.output import escaped, from_now, iso, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_jobs.cron.history import Decided
    from django_jobs.management.output import Output
    from django_jobs.operations.schedules import ScheduleOverview, TickRecord

HEADERS = ("schedule", "expression", "in words", "zone", "next runs", "last run", "state")
HISTORY_HEADERS = ("tick", "decision", "outcome", "job", "why")
_NO_JOB = "none"


def show_schedules(output: Output, schedules: Sequence[ScheduleOverview]) -> None:
    """A table of schedules; times in it are by the clock of each one's zone."""
    if not schedules:
        output.line("no schedules; declare one with @cron, in SCHEDULE or in a hook")
        return
    now = datetime.now(UTC)
    rows = [
        (
            one.schedule.name,
            one.schedule.expression,
            in_words(one.schedule.expression, one.schedule.name),
            one.schedule.timezone,
            _next(one),
            _last(one.last, now),
            _state(one),
        )
        for one in schedules
    ]
    output.table(HEADERS, rows)


def _next(one: ScheduleOverview) -> str:
    """The first with its date, of the others only what is different."""
    zone, told, day = zone_of(one.schedule.timezone), [], None
    for moment in one.next_runs:
        local = moment.astimezone(zone)
        clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
        told.append(clock if local.date() == day else f"{local:%Y-%m-%d} {clock}")
        day = local.date()
    return ", ".join(told) or "never"


def _last(tick: TickRecord | None, now: datetime) -> str:
    if tick is None:
        return "-"
    ended = "" if tick.outcome == _NO_JOB else f", {tick.outcome}"
    why = f" ({shortened(tick.reason)})" if tick.reason else ""
    return f"{from_now((tick.tick - now).total_seconds())}: {tick.decision}{ended}{why}"


def _state(one: ScheduleOverview) -> str:
    if one.paused:
        by = f" by {one.paused_by}" if one.paused_by else ""
        return f"paused{by}" + (f": {shortened(one.reason)}" if one.reason else "")
    return "on" if one.schedule.enabled else "off"


def schedule_document(one: ScheduleOverview) -> dict[str, Any]:
    """A schedule for JSON; every moment is in UTC."""
    schedule = one.schedule
    return {
        "name": schedule.name,
        "expression": schedule.expression,
        "in_words": in_words(schedule.expression, schedule.name),
        "timezone": schedule.timezone,
        "origin": str(schedule.origin),
        "description": schedule.description,
        "handler": schedule.handler,
        "queue": schedule.queue,
        "enabled": schedule.enabled,
        "environments": list(schedule.environments),
        "depends_on": list(schedule.depends_on),
        "paused": one.paused,
        "paused_by": one.paused_by,
        "paused_at": iso(one.paused_at),
        "reason": one.reason,
        "next_runs": [iso(moment) for moment in one.next_runs],
        "last": None if one.last is None else tick_document(one.last),
    }


def tick_document(tick: TickRecord) -> dict[str, Any]:
    """A tick that was decided, for JSON."""
    return {
        "name": tick.name,
        "tick": iso(tick.tick),
        "decision": tick.decision,
        "outcome": tick.outcome,
        "reason": tick.reason,
        "backend": tick.backend,
        "job_id": tick.job_id,
        "decided_at": iso(tick.decided_at),
        "decided_by": tick.decided_by,
    }


def show_history(output: Output, ticks: Sequence[TickRecord]) -> None:
    """The ticks of one schedule, the newest first."""
    if not ticks:
        output.line("no tick of it was decided yet")
        return
    rows = [
        (iso(tick.tick), tick.decision, tick.outcome, tick.job_id or "-", shortened(tick.reason))
        for tick in ticks
    ]
    output.table(HISTORY_HEADERS, rows)


def decided_line(one: Decided) -> str:
    """What was decided for a tick, in one line."""
    job = f" as {one.job_id}" if one.job_id else ""
    why = f": {shortened(one.reason, 200)}" if one.reason else ""
    tick = f"{one.tick:%Y-%m-%d %H:%M:%S} UTC"
    return escaped(f"{one.decision:<10} {shortened(one.name)} of {tick}{job}{why}")


def decided_document(decided: Iterable[Decided]) -> list[dict[str, Any]]:
    """What was decided, for JSON."""
    return [
        {
            "name": one.name,
            "tick": iso(one.tick),
            "decision": one.decision,
            "reason": one.reason,
            "job_id": one.job_id,
        }
        for one in decided
    ]
