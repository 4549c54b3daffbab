"""Schedules that are edited in the admin, as a source of the registry.

Rows are read anew only when one of them changed, and only what is right is handed out. The
handler of a row has to be exposed, when it is saved and at each tick: a row is data. One that
was right when it was saved may be so no more, with another croniter, tzdata or setting.
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
    """What the rows came to, and what tells that they are still the same ones."""

    version: object
    right: list[Schedule]
    wrong: dict[str, str]


_remembered = _Read(None, [], {})


def schedules() -> Iterable[Schedule]:
    """The right ones of the rows."""
    return _read().right if exposed_handlers() else []


def unreadable_rows() -> Mapping[str, str]:
    """The names of the others, and why nobody can run them."""
    return _read().wrong if exposed_handlers() else {}


def moment_of_change(alias: str) -> datetime:
    """What a row that is saved now gets as ``changed_at``; in the caller's transaction.

    By the store's clock, and later than every other row's: that is how schedulers see that
    something changed, whatever the clocks of web servers say. Who saves another row at the
    same time waits.
    """
    rows = AdminSchedule.objects.using(alias)
    rows.select_for_update().order_by("-changed_at", "-id").first()
    latest = rows.aggregate(latest=Max("changed_at"))["latest"]
    now = for_people(store_now(alias))
    return now if latest is None else max(now, latest + timedelta(microseconds=1))


def _read() -> _Read:
    global _remembered  # noqa: PLW0603 - one table
    alias, exposed = jobs_database(), exposed_handlers()
    rows = AdminSchedule.objects.using(alias)
    told = in_reading(alias, lambda: rows.aggregate(Count("id"), Max("id"), Max("changed_at")))
    version = (alias, exposed, *told.values())
    if _remembered.version != version:
        found = in_reading(alias, lambda: list(rows.order_by("name")[:MOST_ROWS]))
        wrong = {row.name: why for row in found if (why := _trouble(row))}
        for name in wrong.keys() - _remembered.wrong.keys():
            events.emit(events.ScheduleUnreadable(schedule=name, why=wrong[name]))
        right = [schedule_of(row) for row in found if row.name not in wrong]
        _remembered = _Read(version, right, wrong)
    return _remembered


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
    if trouble := _trouble(row):
        return [trouble]
    return [problem.message for problem in unrunnable(schedule_of(row))]


def _trouble(row: AdminSchedule) -> str:
    """Why nobody can tell what a row means, or may run it."""
    if row.handler not in exposed_handlers():
        return f"the handler {row.handler!r} is not among SCHEDULE_HANDLERS"
    try:
        problem = unreadable(schedule_of(row))
    except (JobsError, ValueError) as error:
        return str(error)
    return "" if problem is None else problem.message
