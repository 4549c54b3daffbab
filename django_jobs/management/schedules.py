"""Schedules and the decisions about their ticks, as tables, lines and JSON."""

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
    """A table of schedules; times are in the zone of each schedule."""
    if not schedules:
        output.line("no schedules; declare one with @cron, in SCHEDULE or in a hook")
        return
    now = datetime.now(UTC)
    rows = [
        (
            overview.schedule.name,
            overview.schedule.expression,
            in_words(overview.schedule.expression, overview.schedule.name),
            overview.schedule.timezone,
            _next(overview),
            _last(overview.last, now),
            _state(overview),
        )
        for overview in schedules
    ]
    output.table(HEADERS, rows)


def _next(overview: ScheduleOverview) -> str:
    """The next runs; the date is repeated only where it changes."""
    zone, texts, day = zone_of(overview.schedule.timezone), [], None
    for moment in overview.next_runs:
        local = moment.astimezone(zone)
        clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
        texts.append(clock if local.date() == day else f"{local:%Y-%m-%d} {clock}")
        day = local.date()
    return ", ".join(texts) or "never"


def _last(tick: TickRecord | None, now: datetime) -> str:
    if tick is None:
        return "-"
    ended = "" if tick.outcome == _NO_JOB else f", {tick.outcome}"
    why = f" ({shortened(tick.reason)})" if tick.reason else ""
    return f"{from_now((tick.tick - now).total_seconds())}: {tick.decision}{ended}{why}"


def _state(overview: ScheduleOverview) -> str:
    if overview.paused:
        by = f" by {overview.paused_by}" if overview.paused_by else ""
        return f"paused{by}" + (f": {shortened(overview.reason)}" if overview.reason else "")
    return "on" if overview.schedule.enabled else "off"


def schedule_document(overview: ScheduleOverview) -> dict[str, Any]:
    """A schedule for JSON; every moment is in UTC."""
    schedule = overview.schedule
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
        "paused": overview.paused,
        "paused_by": overview.paused_by,
        "paused_at": iso(overview.paused_at),
        "reason": overview.reason,
        "next_runs": [iso(moment) for moment in overview.next_runs],
        "last": None if overview.last is None else tick_document(overview.last),
    }


def tick_document(tick: TickRecord) -> dict[str, Any]:
    """A decided tick for JSON."""
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


def decided_line(decided: Decided) -> str:
    """The decision about a tick, in one line."""
    job = f" as {decided.job_id}" if decided.job_id else ""
    why = f": {shortened(decided.reason, 200)}" if decided.reason else ""
    tick = f"{decided.tick:%Y-%m-%d %H:%M:%S} UTC"
    return escaped(f"{decided.decision:<10} {shortened(decided.name)} of {tick}{job}{why}")


def decided_document(decided: Iterable[Decided]) -> list[dict[str, Any]]:
    """Decisions about ticks for JSON."""
    return [
        {
            "name": tick.name,
            "tick": iso(tick.tick),
            "decision": tick.decision,
            "reason": tick.reason,
            "job_id": tick.job_id,
        }
        for tick in decided
    ]
