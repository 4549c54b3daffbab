"""Which schedule goes first: those that others depend on."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from django_jobs.conf.model import nearest
from django_jobs.exceptions import InvalidSchedule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from django_jobs.cron.schedule import Schedule


def in_order(schedules: Iterable[Schedule]) -> list[Schedule]:
    """The schedules, each behind those it depends on; the same order for the same schedules.

    Those that depend on none come first, as they came in. Raises InvalidSchedule for a name
    that nobody has, and for a circle.
    """
    known = {schedule.name: schedule for schedule in schedules}
    for problem in unknown_names(known.values()).values():
        raise InvalidSchedule(problem)
    sorter = TopologicalSorter({name: one.depends_on for name, one in known.items()})
    try:
        return [known[name] for name in sorter.static_order()]
    except CycleError as error:
        raise InvalidSchedule(told(error)) from None


def circle_among(schedules: Iterable[Schedule]) -> str | None:
    """A circle in the dependencies, in words, or None."""
    sorter = TopologicalSorter({one.name: one.depends_on for one in schedules})
    try:
        sorter.prepare()
    except CycleError as error:
        return told(error)
    return None


def told(error: CycleError) -> str:
    # graphlib lists each behind the one it depends on.
    names = " → ".join(repr(name) for name in reversed(error.args[1]))
    return f"schedules depend on each other in a circle: {names}"


def unknown_names(schedules: Iterable[Schedule], also: Collection[str] = ()) -> Mapping[str, str]:
    """What is wrong with each schedule that depends on a name nobody has.

    ``also`` are names that are there beside those of the schedules.
    """
    known = {schedule.name: schedule for schedule in schedules}
    return {
        schedule.name: (
            f"the schedule {schedule.name!r} depends on {name!r}, and no schedule has that name"
            f"{nearest(name, known)}"
        )
        for schedule in known.values()
        for name in schedule.depends_on
        if name not in known and name not in also
    }
