"""The registry of all schedules: declared ones, and those of sources such as the admin's table."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from django.apps import apps
from django.utils.timezone import get_default_timezone_name

from django_jobs.conf import Problem, ProblemKind, get_settings, read_current
from django_jobs.conf.model import nearest
from django_jobs.cron import configured
from django_jobs.cron.decorator import DECLARED, Declaration
from django_jobs.cron.options import Origin
from django_jobs.cron.problems import unreadable
from django_jobs.cron.schedule import Schedule
from django_jobs.exceptions import InvalidSchedule, JobsError, UnknownSchedule
from django_jobs.lazy import LazyFunction

if TYPE_CHECKING:
    from collections.abc import Collection

    from django_jobs.conf import JobsSettings


# The order of schedules: each behind those it depends on.


def in_order(schedules: Iterable[Schedule]) -> list[Schedule]:
    """The schedules, each behind those it depends on; the same order for the same schedules.

    Those without dependencies come first, in the given order. Raises InvalidSchedule for the
    name of no schedule, and for a circle.
    """
    by_name = {schedule.name: schedule for schedule in schedules}
    for problem in unknown_names(by_name.values()).values():
        raise InvalidSchedule(problem)
    sorter = TopologicalSorter({name: schedule.depends_on for name, schedule in by_name.items()})
    try:
        return [by_name[name] for name in sorter.static_order()]
    except CycleError as error:
        raise InvalidSchedule(_circle(error)) from None


def circle_among(schedules: Iterable[Schedule]) -> str | None:
    """A circle in the dependencies, in words, or None."""
    sorter = TopologicalSorter({schedule.name: schedule.depends_on for schedule in schedules})
    try:
        sorter.prepare()
    except CycleError as error:
        return _circle(error)
    return None


def _circle(error: CycleError) -> str:
    # graphlib lists the names in the opposite order.
    names = " → ".join(repr(name) for name in reversed(error.args[1]))
    return f"schedules depend on each other in a circle: {names}"


def unknown_names(schedules: Iterable[Schedule], also: Collection[str] = ()) -> Mapping[str, str]:
    """What is wrong with each schedule that depends on the name of no schedule.

    ``also``: further names that exist.
    """
    by_name = {schedule.name: schedule for schedule in schedules}
    return {
        schedule.name: (
            f"the schedule {schedule.name!r} depends on {name!r}, and no schedule has that name"
            f"{nearest(name, by_name)}"
        )
        for schedule in by_name.values()
        for name in schedule.depends_on
        if name not in by_name and name not in also
    }


Source = Callable[[], Iterable[Schedule]]
"""Returns schedules that may change while the process runs; called by each ``all_schedules()``."""


# The schedules of this process.


def _schedule_of(declaration: Declaration) -> Schedule:
    """The schedule of a declaration, with its time zone from the settings if it has none."""
    own = {
        **declaration.own,
        "timezone": declaration.own.get("timezone") or get_default_timezone_name(),
    }
    return Schedule(
        name=declaration.name,
        expression=declaration.expression,
        job=declaration.job,
        origin=declaration.origin,
        **own,
    )


@dataclass(slots=True)
class _Reading:
    """The declared schedules and their problems, as read under certain settings."""

    settings: JobsSettings
    of_code: int
    schedules: dict[str, Schedule] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    where: dict[str, str] = field(default_factory=dict)

    def add(self, declaration: Declaration) -> None:
        name = declaration.name
        if name in self.where:
            self.problems.append(
                Problem(
                    name,
                    f"two schedules have the name {name!r}: one of {self.where[name]}, the other "
                    f"of {declaration.where}",
                    "Give one of them another name.",
                    ProblemKind.SCHEDULE,
                )
            )
            return
        self.where[name] = declaration.where
        schedule = _schedule_of(declaration)
        if problem := unreadable(schedule, declaration.where):
            self.problems.append(problem)
        else:
            self.schedules[name] = schedule


class Schedules:
    """The schedules of this process."""

    def __init__(self, of_code: list[Declaration] | None = None) -> None:
        self._of_code = [] if of_code is None else of_code
        self._sources: list[Source] = []
        self._reading: _Reading | None = None

    def register_source(self, source: Source) -> None:
        """Let ``all_schedules()`` call ``source`` too. Registering it twice has no effect."""
        if source not in self._sources:
            self._sources.append(source)

    def declared(self) -> tuple[Schedule, ...]:
        """The readable schedules of code, settings and hooks, in that order.

        Read once per process and settings: the hooks ``schedule(scheduler)`` in the ``jobs.py``
        of installed apps run at the first call. Raises SettingsError.
        """
        return tuple(self._read(get_settings()).schedules.values())

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the declared schedules, including their names and dependencies."""
        reading = self._read(read_current()[0])
        return (*reading.problems, *_problems_of_order(reading))

    def all_schedules(self) -> list[Schedule]:
        """Declared schedules and those of the sources; a declared one wins over the same name."""
        by_name = {schedule.name: schedule for schedule in self.declared()}
        for source in self._sources:
            for schedule in source():
                by_name.setdefault(schedule.name, schedule)
        return list(by_name.values())

    def find(self, name: str) -> Schedule:
        """The schedule of a name; raises UnknownSchedule naming the nearest one."""
        by_name = {schedule.name: schedule for schedule in self.all_schedules()}
        if name not in by_name:
            raise UnknownSchedule(f"no schedule has the name {name!r}{nearest(name, by_name)}")
        return by_name[name]

    def _read(self, settings: JobsSettings) -> _Reading:
        before = self._reading
        if before and before.settings is settings and before.of_code == len(self._of_code):
            return before
        reading = _Reading(settings, len(self._of_code))
        for declaration in self._of_code:
            reading.add(declaration)
        for name, entry in settings.schedule.items():
            try:
                job, own, expression = configured.read(name, entry)
            except JobsError as error:
                where = f"SCHEDULE[{name!r}]"
                reading.problems.append(
                    Problem(name, f"{where}: {error}", _CORRECT, ProblemKind.SCHEDULE)
                )
                continue
            reading.add(
                Declaration(name, expression, job, own, Origin.SETTINGS, f"SCHEDULE[{name!r}]")
            )
        for declaration in _of_hooks(reading):
            reading.add(declaration)
        self._reading = reading
        return reading


_CORRECT = "Correct the entry."


def _of_hooks(reading: _Reading) -> Iterator[Declaration]:
    from django_jobs.cron.builder import Scheduler  # noqa: PLC0415 - it depends on this module

    for config in apps.get_app_configs():
        module = sys.modules.get(f"{config.name}.jobs")
        hook = getattr(module, "schedule", None)
        # A job with that name, or a function that was imported, is no hook.
        if not inspect.isfunction(hook) or hook.__module__ != f"{config.name}.jobs":
            continue
        where = f"{hook.__module__}.schedule"
        scheduler = Scheduler(where)
        try:
            hook(scheduler)
            yield from scheduler.declarations()
        except Exception as error:  # noqa: BLE001 - a hook is user code
            message = f"{where}(scheduler) raised {type(error).__name__}: {error}"
            reading.problems.append(
                Problem(where, message, "Correct the hook.", ProblemKind.SCHEDULE)
            )


def _problems_of_order(reading: _Reading) -> Iterator[Problem]:
    hint = "Correct depends_on; it takes names of schedules."
    schedules = list(reading.schedules.values())
    unknown = unknown_names(schedules, also=reading.where)
    for name, message in unknown.items():
        yield Problem(name, message, hint, ProblemKind.SCHEDULE_ORDER)
    if circle := circle_among(schedules):
        hint = "Take one of them out of a depends_on."
        yield Problem("", circle, hint, ProblemKind.SCHEDULE_ORDER)


registry = Schedules(DECLARED)
registry.register_source(LazyFunction("django_jobs.cron.stored.schedules"))

declared = registry.declared
problems = registry.problems
register_source = registry.register_source
all_schedules = registry.all_schedules
find = registry.find


def exposed_handlers() -> tuple[str, ...]:
    """The keys of handlers that may be scheduled in the admin: the setting SCHEDULE_HANDLERS.

    A row whose handler is not among them is refused, when saved and at each tick.
    """
    return get_settings().schedule_handlers
