"""The gates that may hold a schedule back. All but ``when`` are checked without user code."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync
from django.utils.module_loading import import_string

from django_jobs.cron.zones import zone_of

if TYPE_CHECKING:
    from datetime import datetime

    from django_jobs.cron.schedule import Schedule


def shut(schedule: Schedule, tick: datetime, environment: str | None) -> str | None:
    """Why the first shut gate holds this tick back, for people; None if all are open.

    Does not run ``when``.
    """
    if not schedule.enabled:
        return "it is not enabled"
    if schedule.environments and environment not in schedule.environments:
        here = f"this one is {environment!r}" if environment else "ENVIRONMENT is not set"
        listed = ", ".join(schedule.environments)
        return f"it runs in {listed} only, and {here}"
    return _window(schedule, tick)


def _window(schedule: Schedule, tick: datetime) -> str | None:
    if not (schedule.between or schedule.unless_between):
        return None
    local = tick.astimezone(zone_of(schedule.timezone)).time()
    clock = f"{local:%H:%M:%S} in {schedule.timezone}"
    if schedule.between and not any(window.holds(local) for window in schedule.between):
        windows = ", ".join(map(str, schedule.between))
        return f"it runs between {windows} only, and it was {clock}"
    for window in schedule.unless_between:
        if window.holds(local):
            return f"it does not run between {window}, and it was {clock}"
    return None


def run_when(schedule: Schedule) -> bool:
    """Run the schedule's ``when``: user code, so only ever in a child. True without one."""
    when = schedule.when
    if when is None:
        return True
    function = import_string(when) if isinstance(when, str) else when
    if inspect.iscoroutinefunction(function):
        function = async_to_sync(function)
    return bool(function())
