"""Check a single schedule: whether its times can be read, and whether its jobs could run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from django_jobs.conf import Problem, ProblemKind, get_settings
from django_jobs.conf.model import INLINE_QUEUE
from django_jobs.cron.expression import parsed
from django_jobs.cron.schedule import keeping_results
from django_jobs.cron.zones import zone_of
from django_jobs.enqueue import Plan
from django_jobs.exceptions import InvalidSchedule, JobsError
from django_jobs.handlers.registry import registry as handlers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.cron.schedule import Schedule


def unreadable(schedule: Schedule, where: str = "") -> Problem | None:
    """Why the moments of a schedule cannot be computed, or None."""
    subject = f"the schedule {schedule.name!r}" + (f" of {where}" if where else "")
    try:
        parsed(schedule.expression, schedule.name)
    except InvalidSchedule as error:
        return Problem(
            schedule.name, f"{subject}: {error}", _EXPRESSION, ProblemKind.SCHEDULE_EXPRESSION
        )
    try:
        zone_of(schedule.timezone)
    except InvalidSchedule as error:
        return Problem(schedule.name, f"{subject}: {error}", _ZONE, ProblemKind.SCHEDULE_ZONE)
    return None


_ZONE = "Name a zone of the IANA database, such as 'Europe/Paris'."
_EXPRESSION = (
    "Five fields: minute, hour, day of the month, month, day of the week; a sixth is the second. "
    "django_jobs.cron.builder has functions that write them."
)


def unrunnable(schedule: Schedule) -> Iterator[Problem]:
    """Why its jobs could never run. Only for system checks: handlers and settings may change."""
    subject = job_subject = f"the schedule {schedule.name!r}"
    handler = handlers.get_verified(schedule.handler)
    try:
        if handler is None:
            handlers.find(schedule.handler)
        else:
            handler.encode(schedule.job.payload)
        options = keeping_results(schedule.job.options, get_settings().result_ttl)
        changes: dict[str, Any] = {"queue": schedule.queue or INLINE_QUEUE}
        if schedule.jitter:  # the longest that there may be
            job_subject += f", with a jitter of {schedule.jitter:g} s"
            changes["delay"] = schedule.jitter
        Plan(schedule.handler, options.using(**changes)).resolve()
    except (JobsError, ValueError) as error:
        hint = "Correct it as the message says."
        yield Problem(schedule.name, f"{job_subject}: {error}", hint, ProblemKind.SCHEDULE_JOB)
    if isinstance(schedule.when, str):
        yield from _unimportable(schedule.name, subject, schedule.when)


def _unimportable(name: str, subject: str, path: str) -> Iterator[Problem]:
    reason = ""
    try:
        if not callable(import_string(path)):
            reason = "which cannot be called"
    except Exception as error:  # noqa: BLE001 - importing runs code that may raise anything
        reason = f"which cannot be imported: {error}"
    if reason:
        message = f"{subject} has when={path!r}, {reason}"
        yield Problem(name, message, "Name a function without arguments.", ProblemKind.SCHEDULE_JOB)
