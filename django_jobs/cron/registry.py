"""Where all schedules are found: declared ones, and those of sources such as the admin's table."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from django.apps import apps
from django.utils.timezone import get_default_timezone_name

from django_jobs.conf import Kind, Problem, get_settings, read_current
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


# Which schedule goes first: those that others depend on.


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


Source = Callable[[], Iterable[Schedule]]
"""Gives schedules that may change while the process runs; asked at each ``all_schedules()``."""


def _schedule_of(declaration: Declaration) -> Schedule:
    """The schedule that was declared, now that the settings can be asked for its time zone."""
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
class _Found:
    """What looking for the declared schedules came to, under certain settings."""

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
                    Kind.SCHEDULE,
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
        self._found: _Found | None = None

    def register_source(self, source: Source) -> None:
        """Have ``all_schedules()`` ask ``source`` too. The same one twice counts once."""
        if source not in self._sources:
            self._sources.append(source)

    def declared(self) -> tuple[Schedule, ...]:
        """Those declared in code, settings and hooks that can be read, in that order.

        Found once per process and settings: the hooks ``schedule(scheduler)`` in the ``jobs.py``
        of installed apps run at the first call. Raises SettingsError.
        """
        return tuple(self._look(get_settings()).schedules.values())

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong among the declared ones, their names and dependencies included."""
        found = self._look(read_current()[0])
        return (*found.problems, *_problems_of_order(found))

    def all_schedules(self) -> list[Schedule]:
        """Declared ones and those of the sources. A declared one wins over a row of its name."""
        found = {schedule.name: schedule for schedule in self.declared()}
        for source in self._sources:
            for schedule in source():
                found.setdefault(schedule.name, schedule)
        return list(found.values())

    def find(self, name: str) -> Schedule:
        """The schedule of a name; raises UnknownSchedule naming the nearest one."""
        known = {schedule.name: schedule for schedule in self.all_schedules()}
        if name not in known:
            raise UnknownSchedule(f"no schedule has the name {name!r}{nearest(name, known)}")
        return known[name]

    def _look(self, settings: JobsSettings) -> _Found:
        known = self._found
        if known and known.settings is settings and known.of_code == len(self._of_code):
            return known
        found = _Found(settings, len(self._of_code))
        for declaration in self._of_code:
            found.add(declaration)
        for name, entry in settings.schedule.items():
            try:
                job, own, expression = configured.read(name, entry)
            except JobsError as error:
                where = f"SCHEDULE[{name!r}]"
                found.problems.append(Problem(name, f"{where}: {error}", _CORRECT, Kind.SCHEDULE))
                continue
            found.add(
                Declaration(name, expression, job, own, Origin.SETTINGS, f"SCHEDULE[{name!r}]")
            )
        for declaration in _of_hooks(found):
            found.add(declaration)
        self._found = found
        return found


_CORRECT = "Correct the entry."


def _of_hooks(found: _Found) -> Iterator[Declaration]:
    from django_jobs.cron.builder import Scheduler  # noqa: PLC0415 - it is built upon this module

    for config in apps.get_app_configs():
        module = sys.modules.get(f"{config.name}.jobs")
        hook = getattr(module, "schedule", None)
        # A job of that name, or one that was imported, is no hook.
        if not inspect.isfunction(hook) or hook.__module__ != f"{config.name}.jobs":
            continue
        where = f"{hook.__module__}.schedule"
        scheduler = Scheduler(where)
        try:
            hook(scheduler)
            yield from scheduler.declarations()
        except Exception as error:  # noqa: BLE001 - a hook is anybody's code
            message = f"{where}(scheduler) raised {type(error).__name__}: {error}"
            found.problems.append(Problem(where, message, "Correct the hook.", Kind.SCHEDULE))


def _problems_of_order(found: _Found) -> Iterator[Problem]:
    hint = "Correct depends_on; it takes names of schedules."
    schedules = list(found.schedules.values())
    unknown = unknown_names(schedules, also=found.where)
    for name, message in unknown.items():
        yield Problem(name, message, hint, Kind.SCHEDULE_ORDER)
    if circle := circle_among(schedules):
        hint = "Take one of them out of a depends_on."
        yield Problem("", circle, hint, Kind.SCHEDULE_ORDER)


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
