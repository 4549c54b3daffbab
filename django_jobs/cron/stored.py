"""Schedules that are edited in the admin, as a source of the registry.

Rows are read anew only when one of them changed, and only what is right is handed out. The
handler of a row has to be exposed, when it is saved and at each tick: a row is data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Count, Max

from django_jobs.backends.database.transactions import in_reading
from django_jobs.cron.problems import unreadable, unrunnable
from django_jobs.cron.registry import exposed_handlers
from django_jobs.cron.schedule import Missed, Origin, Overlap, Schedule
from django_jobs.definition import JobDefinition
from django_jobs.exceptions import JobsError
from django_jobs.handlers.registry import registry as handlers
from django_jobs.models import AdminSchedule
from django_jobs.operations.database import jobs_database

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ROWS = 10_000
_remembered: tuple[object, list[Schedule]] | None = None


def schedules() -> Iterable[Schedule]:
    """The right ones of the rows."""
    global _remembered  # noqa: PLW0603 - one table
    alias, exposed = jobs_database(), exposed_handlers()
    if not exposed:
        return []
    rows = AdminSchedule.objects.using(alias)
    told = in_reading(alias, lambda: rows.aggregate(Count("id"), Max("id"), Max("changed_at")))
    version = (alias, exposed, *told.values())
    if _remembered is None or _remembered[0] != version:
        found = in_reading(alias, lambda: list(rows.order_by("name")[:MOST_ROWS]))
        _remembered = (version, [one for row in found if (one := _right(row)) is not None])
    return _remembered[1]


def schedule_of(row: AdminSchedule) -> Schedule:
    """What a row says; raises InvalidJob for options that make no sense.

    What it does not say is as the handler says, save the queue: without one it runs inline.
    """
    given = {"queue": row.queue or None, "timeout": row.timeout, "max_retries": row.max_retries}
    said = {name: value for name, value in given.items() if value is not None or name == "queue"}
    if row.priority:
        said["priority"] = row.priority
    options = handlers.options_of(row.handler).using(**said)
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
    """Why a row cannot be a schedule, in sentences; empty when it can."""
    if row.handler not in exposed_handlers():
        return [f"the handler {row.handler!r} is not among SCHEDULE_HANDLERS"]
    try:
        schedule = schedule_of(row)
    except (JobsError, ValueError) as error:
        return [str(error)]
    found = [unreadable(schedule), *unrunnable(schedule)]
    return [problem.message for problem in found if problem is not None]


def _right(row: AdminSchedule) -> Schedule | None:
    try:
        schedule = schedule_of(row)
    except (JobsError, ValueError):
        return None
    if row.handler not in exposed_handlers() or unreadable(schedule) is not None:
        return None
    return schedule
