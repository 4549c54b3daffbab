"""Schedules that are edited in the admin, as a source of the registry.

Rows are read again only when one of them has changed, and only valid ones become schedules. The
handler of a row must be exposed, both when it is saved and at each tick, as a row is data. A row
that was valid when saved may become invalid with another croniter, tzdata or setting.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from django.db.models import Count, Max

from django_jobs.backends.home import jobs_database, store_now
from django_jobs.cron.options import Missed, Origin, Overlap
from django_jobs.cron.problems import unreadable, unrunnable
from django_jobs.cron.registry import exposed_handlers
from django_jobs.cron.schedule import Schedule
from django_jobs.db.clock import for_people
from django_jobs.db.transactions import in_reading
from django_jobs.definition import JobDefinition
from django_jobs.exceptions import JobsError
from django_jobs.handlers.registry import registry as handlers
from django_jobs.models import AdminSchedule
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

MOST_ROWS = 10_000


class _Read(NamedTuple):
    """The schedules of the rows as last read, with a version that changes with the rows."""

    version: object
    valid: list[Schedule]
    invalid: dict[str, str]


_cached = _Read(None, [], {})


def schedules() -> Iterable[Schedule]:
    """The schedules of all valid rows."""
    return _read().valid if exposed_handlers() else []


def unreadable_rows() -> Mapping[str, str]:
    """The names of invalid rows, and why they cannot run."""
    return _read().invalid if exposed_handlers() else {}


def moment_of_change(alias: str) -> datetime:
    """The ``changed_at`` for a row that is saved now, in the caller's transaction.

    By the store's clock, and later than that of every other row, so that schedulers notice the
    change whatever the clocks of web servers say. Locks, so that a second save waits.
    """
    rows = AdminSchedule.objects.using(alias)
    rows.select_for_update().order_by("-changed_at", "-id").first()
    latest = rows.aggregate(latest=Max("changed_at"))["latest"]
    now = for_people(store_now(alias))
    return now if latest is None else max(now, latest + timedelta(microseconds=1))


def _read() -> _Read:
    global _cached  # noqa: PLW0603 - one table
    alias, exposed = jobs_database(), exposed_handlers()
    rows = AdminSchedule.objects.using(alias)
    figures = in_reading(alias, lambda: rows.aggregate(Count("id"), Max("id"), Max("changed_at")))
    version = (alias, exposed, *figures.values())
    if _cached.version != version:
        entries = in_reading(alias, lambda: list(rows.order_by("name")[:MOST_ROWS]))
        invalid = {row.name: why for row in entries if (why := _problem(row))}
        for name in invalid.keys() - _cached.invalid.keys():
            events.emit(events.ScheduleUnreadable(schedule=name, why=invalid[name]))
        valid = [schedule_of(row) for row in entries if row.name not in invalid]
        _cached = _Read(version, valid, invalid)
    return _cached


def schedule_of(row: AdminSchedule) -> Schedule:
    """The schedule of a row; raises InvalidJob for invalid options.

    Options that are not set come from the handler, except the queue: without one it runs inline.
    """
    columns = {"queue": row.queue or None, "timeout": row.timeout, "max_retries": row.max_retries}
    changes = {
        name: value for name, value in columns.items() if value is not None or name == "queue"
    }
    if row.priority:
        changes["priority"] = row.priority
    options = handlers.options_of(row.handler).using(**changes)
    return Schedule(
        name=row.name,
        description=row.description,
        expression=row.expression,
        timezone=row.timezone,
        job=JobDefinition(row.handler, row.payload, options),
        origin=Origin.ADMIN,
        enabled=row.enabled,
        missed=Missed(row.missed),
        deadline=row.deadline,
        overlap=Overlap(row.overlap),
    )


def problems(row: AdminSchedule) -> list[str]:
    """Why a row cannot be a schedule, in sentences; empty if it can."""
    if problem := _problem(row):
        return [problem]
    return [problem.message for problem in unrunnable(schedule_of(row))]


def _problem(row: AdminSchedule) -> str:
    """Why a row cannot be read as a schedule, or may not run; empty if it may."""
    if row.handler not in exposed_handlers():
        return f"the handler {row.handler!r} is not among SCHEDULE_HANDLERS"
    try:
        problem = unreadable(schedule_of(row))
    except (JobsError, ValueError) as error:
        return str(error)
    return "" if problem is None else problem.message
