"""``@cron``: declare the schedule of a job beside the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from django_jobs.cron.options import Origin, ScheduleOptions, checked_name, split
from django_jobs.decorators import HandlerJob, JobFunction, JobHandler
from django_jobs.definition import UNSET, JobDefinition, QueueOptions, RunOptions
from django_jobs.enqueue import DefinedJob
from django_jobs.exceptions import InvalidJob, InvalidOption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

J = TypeVar("J")


class Declaration(NamedTuple):
    """A schedule as declared, before its time zone is read from the settings.

    ``own`` holds fields of Schedule; ``where`` names the place of the declaration for people.
    """

    name: str
    expression: str
    job: JobDefinition
    own: Mapping[str, Any]
    origin: Origin
    where: str


DECLARED: list[Declaration] = []
"""What ``@cron`` has declared in this process. Only schedulers read it."""


class CronOptions(ScheduleOptions, RunOptions, QueueOptions, total=False):
    """The options of ``@cron``: those of a schedule, and those of its jobs."""

    expires: float | timedelta | None  # no moment, which would be the same for every run


def cron(
    expression: str,
    /,
    *,
    name: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    payload: Any = UNSET,
    **options: Unpack[CronOptions],
) -> Callable[[J], J]:
    """Run a job on a schedule: ``@cron("0 2 * * *", timezone="Europe/Paris")`` above ``@job``.

    The name of the schedule is by default the job's ``name``, or else its key; two schedules of
    one job need names of their own. ``args`` and ``kwargs`` are what the function is called with,
    ``payload`` is for handler classes. Without a queue, here or at the job, each run is one
    attempt in a child of the scheduler. A wrong expression is reported by the system checks; other
    mistakes raise InvalidOption or InvalidPayload.
    """
    own, of_jobs = split(options)

    def decorate(target: J) -> J:
        job = definition_of(target, args, kwargs or {}, payload, of_jobs)
        chosen = checked_name((job.options.name or job.handler) if name is None else name)
        DECLARED.append(Declaration(chosen, expression, job, own, Origin.CODE, job.handler))
        return target

    return decorate


def definition_of(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    payload: Any,
    options: Mapping[str, Any],
) -> JobDefinition:
    """The job definition of anything that can be enqueued; raises InvalidJob."""
    _refuse_not_before(options)
    if isinstance(target, JobFunction):
        if payload is not UNSET:
            raise InvalidOption(f"{target.key} is a function; give args and kwargs, not payload")
        called = target.handler.payload(tuple(args), dict(kwargs))
        return JobDefinition(target.key, called, target.options.using(**options))
    if args or kwargs:
        raise InvalidOption("args and kwargs are for functions; give payload")
    if isinstance(target, DefinedJob):
        return JobDefinition(target.handler, target.payload, target.options.using(**options))
    if isinstance(target, type) and issubclass(target, JobHandler):
        target = target.using()
    if isinstance(target, HandlerJob):
        encoded = target.handler.encode(None if payload is UNSET else payload)
        return JobDefinition(target.handler.key, encoded, target.plan.options.using(**options))
    raise InvalidJob(
        f"{target!r} is no job, and only jobs have schedules; write @cron above @job, not below it"
    )


def _refuse_not_before(options: Mapping[str, Any]) -> None:
    for name in ("delay", "run_at"):
        if options.get(name) is not None:
            raise InvalidOption(f"{name} is not for schedules: the expression says when")
