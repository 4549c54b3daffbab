"""System checks of an alias of TASKS that leads to django_jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.checks import Error
from django.core.checks import Warning as CheckWarning

from django_jobs.conf import read_current
from django_jobs.conf.model import nearest
from django_jobs.definition import queue_of_tasks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from django.core.checks import CheckMessage

    from django_jobs.conf import JobsSettings

OPTION_NAMES = ("BACKEND",)


def check_alias(alias: str, options: Any, queues: Collection[str]) -> Iterator[CheckMessage]:
    """All problems of an alias that can be detected without a connection."""
    if not apps.is_installed("django_jobs"):
        yield Error(
            f"TASKS[{alias!r}] leads to django_jobs, and 'django_jobs' is not in INSTALLED_APPS.",
            hint="Add it to INSTALLED_APPS, and run manage.py migrate.",
            id="django_jobs.E022",
        )
        return
    settings, _problems = read_current()
    yield from _check_options(alias, options, settings)
    yield from _check_queues(alias, queues, settings)
    yield from _check_homes(alias, options, queues, settings)


def _check_options(alias: str, options: Any, settings: JobsSettings) -> Iterator[CheckMessage]:
    where = f"TASKS[{alias!r}]['OPTIONS']"
    if not isinstance(options, Mapping):
        yield Error(
            f"{where} is {type(options).__name__}, not a dict.",
            hint='Write it as {"BACKEND": "database"}, or leave it out.',
            id="django_jobs.E017",
        )
        return
    for key in options:
        if key not in OPTION_NAMES:
            yield Error(
                f"{where} has the key {key!r}, which is unknown{nearest(key, OPTION_NAMES)}.",
                hint="Remove it. Everything but the choice of a backend is set in DJANGO_JOBS.",
                id="django_jobs.E017",
            )
    chosen = options.get("BACKEND")
    if chosen and chosen not in settings.backends:
        yield Error(
            f"{where}['BACKEND'] is {chosen!r}, which is not in DJANGO_JOBS['BACKENDS']"
            f"{nearest(chosen, settings.backends)}.",
            hint="Name one of the aliases there.",
            id="django_jobs.E018",
        )


def _check_queues(
    alias: str, queues: Collection[str], settings: JobsSettings
) -> Iterator[CheckMessage]:
    for queue in sorted(queues, key=str):
        if problem := settings.queue_problem(_among_jobs(queue)):
            yield CheckWarning(
                f"TASKS[{alias!r}]['QUEUES'] has {queue!r}, to which no task can be enqueued: "
                f"{problem}.",
                hint="Tasks use the queues that both TASKS and DJANGO_JOBS allow.",
                id="django_jobs.W012",
            )


def _check_homes(
    alias: str, options: Any, queues: Collection[str], settings: JobsSettings
) -> Iterator[CheckMessage]:
    chosen = options.get("BACKEND") if isinstance(options, Mapping) else None
    carrier = chosen or settings.default_backend
    for queue in sorted(queues, key=str):
        jobs_queue = _among_jobs(queue)
        home = settings.queue(jobs_queue).backend
        if home is not None and home != carrier:
            yield CheckWarning(
                f"TASKS[{alias!r}]['QUEUES'] has {queue!r}, whose tasks go to the backend "
                f"{carrier!r}; by DJANGO_JOBS['QUEUES'][{jobs_queue!r}]['BACKEND'] its jobs are in "
                f"{home!r}, and so are its workers.",
                hint="Give the queue to an alias of TASKS whose OPTIONS name that backend.",
                id="django_jobs.W013",
            )


def _among_jobs(queue: Any) -> Any:
    return queue_of_tasks(queue) if isinstance(queue, str) else queue
