"""A schedule: an expression, a time zone, a job, and what to do when things go wrong.

Frozen plain data. A schedule may be invalid (an expression that cannot be parsed, a zone that
does not exist): ``django_jobs.cron.problems`` checks that, and the registry returns only valid
ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_jobs.cron.options import Daylight, Dependency, Missed, Origin, Overlap

if TYPE_CHECKING:
    from django_jobs.cron.options import When, Window
    from django_jobs.definition import JobDefinition, Options

RESULT_KEPT_SECONDS = 86_400.0
"""The result of a tick's job is kept at least so long, as schedulers read from it how the job
ended. A day, as they may run from a crontab once a day, or be down for a night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule. ``job`` is what to enqueue: a handler key, a payload and options.

    A schedule without a queue runs inline: one attempt, in a child of the scheduler.
    ``depends_on`` holds names of schedules, not of jobs.
    """

    name: str
    expression: str
    job: JobDefinition
    timezone: str = "UTC"
    description: str = ""
    origin: Origin = Origin.CODE

    # Gates. All must be open; ``when`` runs last, in a child, as it is user code.
    enabled: bool = True
    environments: tuple[str, ...] = ()  # none: any
    between: tuple[Window, ...] = ()  # none: always
    unless_between: tuple[Window, ...] = ()
    when: When | None = None

    depends_on: tuple[str, ...] = ()
    dependency: Dependency = Dependency.ORDER
    missed: Missed = Missed.LATEST
    missed_limit: int = 100  # how many Missed.ALL makes up for
    deadline: float | None = None  # seconds after which a missed tick is not made up for
    overlap: Overlap = Overlap.ALLOW
    daylight: Daylight = Daylight.AUTO
    jitter: float = 0.0  # the job becomes due at random within so many seconds

    @property
    def handler(self) -> str:
        """The key of the handler that its jobs run."""
        return self.job.handler

    @property
    def queue(self) -> str | None:
        """The queue its jobs go to; None runs them inline."""
        return self.job.options.queue

    @property
    def single_instance(self) -> bool | str | None:
        """The option of the same name: at most one of its jobs runs at a time."""
        return self.job.options.single_instance


def keeping_results(options: Options, default: float) -> Options:
    """Options of a schedule's job as its ticks are enqueued; ``default`` is ``RESULT_TTL``."""
    asked = default if options.result_ttl is None else options.result_ttl
    if asked >= RESULT_KEPT_SECONDS:
        return options
    return options.using(result_ttl=RESULT_KEPT_SECONDS)
