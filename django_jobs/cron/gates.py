"""What may hold a schedule back, as far as it can be told without running user code."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync
from django.utils.module_loading import import_string

from django_jobs.cron.zones import zone_of

if TYPE_CHECKING:
    from datetime import datetime

    from django_jobs.cron.schedule import Schedule


class Gate(StrEnum):
    """The gates, in the order in which they are asked."""

    DISABLED = "disabled"
    ENVIRONMENT = "environment"
    WINDOW = "window"
    WHEN = "when"


@dataclass(frozen=True, slots=True)
class Shut:
    """A gate that is shut, and why, in words for people."""

    gate: Gate
    reason: str


def shut(schedule: Schedule, tick: datetime, environment: str | None) -> Shut | None:
    """The first gate that holds this tick back, or None. ``when`` is not asked."""
    if not schedule.enabled:
        return Shut(Gate.DISABLED, "it is not enabled")
    if schedule.environments and environment not in schedule.environments:
        here = f"this one is {environment!r}" if environment else "ENVIRONMENT is not set"
        listed = ", ".join(schedule.environments)
        return Shut(Gate.ENVIRONMENT, f"it runs in {listed} only, and {here}")
    return _window(schedule, tick)


def _window(schedule: Schedule, tick: datetime) -> Shut | None:
    if not (schedule.between or schedule.unless_between):
        return None
    local = tick.astimezone(zone_of(schedule.timezone)).time()
    told = f"{local:%H:%M:%S} in {schedule.timezone}"
    if schedule.between and not any(window.holds(local) for window in schedule.between):
        windows = ", ".join(map(str, schedule.between))
        return Shut(Gate.WINDOW, f"it runs between {windows} only, and it was {told}")
    for window in schedule.unless_between:
        if window.holds(local):
            return Shut(Gate.WINDOW, f"it does not run between {window}, and it was {told}")
    return None


def asked(schedule: Schedule) -> bool:
    """Run the schedule's ``when``: user code, so only ever in a child. True without one."""
    when = schedule.when
    if when is None:
        return True
    function = import_string(when) if isinstance(when, str) else when
    if inspect.iscoroutinefunction(function):
        function = async_to_sync(function)
    return bool(function())
