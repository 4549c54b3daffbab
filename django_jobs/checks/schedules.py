"""Checks of schedules and of the jobs they enqueue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it

from django_jobs.conf.model import nearest
from django_jobs.cron.expression import changed_meaning
from django_jobs.cron.problems import unrunnable
from django_jobs.cron.registry import registry
from django_jobs.handlers.registry import registry as handlers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.checks import CheckMessage

    from django_jobs.conf import JobsSettings, Problem


def check_declared(_settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Each schedule has a unique name, can be read and has no circular dependency."""
    for problem in registry.problems():
        yield Error(f"{problem.message}.", hint=problem.hint, id=problem.kind.value)


def check_jobs_of_schedules(
    settings: JobsSettings, problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """The jobs of schedules could run."""
    if problems:
        return  # invalid settings do not show what a queue allows
    for schedule in registry.declared():
        for problem in unrunnable(schedule):
            yield Error(f"{problem.message}.", hint=problem.hint, id=problem.kind.value)
        if changed := changed_meaning(schedule.expression):
            yield Warning(
                f"The schedule {schedule.name!r} has the expression {schedule.expression!r}, in "
                f"which {changed}; with croniter before version 7 it meant the whole field.",
                hint="Write it unambiguously: the value alone, or '*/step'.",
                id="django_jobs.W040",
            )
        if schedule.environments and settings.environment is None:
            yield Warning(
                f"The schedule {schedule.name!r} runs in certain environments only, but "
                "this one has no name: it never runs.",
                hint="Set ENVIRONMENT, or the environment variable JOBS_ENVIRONMENT.",
                id="django_jobs.W041",
            )


def check_exposed(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Handlers exposed for schedules of the admin exist."""
    for key in settings.schedule_handlers:
        if key not in handlers and handlers.get_verified(key) is None:
            yield Warning(
                f"SCHEDULE_HANDLERS names {key!r}, which is not registered"
                f"{nearest(key, list(handlers))}.",
                hint="Correct the key, or remove it.",
                id="django_jobs.W042",
            )


SCHEDULE_CHECKS = (check_declared, check_jobs_of_schedules, check_exposed)
