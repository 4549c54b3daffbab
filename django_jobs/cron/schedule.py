"""What a schedule is: an expression, a time zone, a job, and what to do when things go wrong.

Frozen plain data. A schedule may be wrong (an expression nobody can read, a zone that is not
there): ``django_jobs.cron.problems`` says so, and the registry hands out only right ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datetime import time

    from django_jobs.definition import JobDefinition, Options

RESULT_KEPT_SECONDS = 86_400.0
"""At least so long the result of a tick's job is kept, for schedulers read from it how the job
ended. A day: they may come from a crontab once a day, or be away for a night."""

When = Callable[[], Any] | str
"""The gate ``when``: a function without arguments, or the dotted path of one."""


class Origin(StrEnum):
    """Where a schedule was declared."""

    CODE = "code"
    SETTINGS = "settings"
    HOOK = "hook"
    ADMIN = "admin"


class Missed(StrEnum):
    """What becomes of ticks that passed while no scheduler ran.

    ``skip``: none of them runs. ``latest``: the last of them, once. ``all``: each of them, the
    oldest first, at most ``missed_limit`` of the latest.
    """

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a tick while the job of an earlier one still waits or runs.

    ``allow``: it is enqueued beside it. ``skip``: it is left out. ``queue-one``: it is enqueued
    to run after it, unless one waits for that already.
    """

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue-one"


class Dependency(StrEnum):
    """What ``depends_on`` asks for.

    ``order``: in the same tick, theirs are enqueued first. ``succeeded``: their runs of this tick
    must have ended well; where one failed, this one is skipped.
    """

    ORDER = "order"
    SUCCEEDED = "succeeded"


class Daylight(StrEnum):
    """How an expression is read on days on which the clocks are changed.

    ``fixed``: a time that comes twice counts once, the first time; one that does not come at all
    counts at the first moment after the gap. ``interval``: whenever the clock on the wall shows
    the time, so twice or not at all. ``auto``: ``interval`` where the field of the hour, minute
    or second has a ``*`` or a step, or names every value there is; ``fixed`` otherwise.
    """

    AUTO = "auto"
    FIXED = "fixed"
    INTERVAL = "interval"


class Window(NamedTuple):
    """A part of the day, in the zone of its schedule: from ``start`` until before ``end``.

    A window whose end is not after its start goes over midnight.
    """

    start: time
    end: time

    def holds(self, moment: time) -> bool:
        """True while the window is open."""
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end

    def __str__(self) -> str:
        return f"{_shown(self.start)}-{_shown(self.end)}"


def _shown(moment: time) -> str:
    return moment.isoformat("seconds" if moment.second else "minutes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule. What to enqueue is ``job``: a handler key, a payload and options.

    A schedule without a queue runs inline: one attempt, in a child of the scheduler.
    ``depends_on`` holds names of schedules, not of jobs.
    """

    name: str
    expression: str
    job: JobDefinition
    timezone: str = "UTC"
    description: str = ""
    origin: Origin = Origin.CODE

    # Gates. All must be open; ``when`` is asked last, in a child, as it is user code.
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
    jitter: float = 0.0  # seconds within which the job becomes due, by chance

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
        """As the option of the same name, which see: at most one of its jobs runs at a time."""
        return self.job.options.single_instance


def keeping_results(options: Options, default: float) -> Options:
    """Options of a schedule's job as its ticks are enqueued; ``default`` is ``RESULT_TTL``."""
    asked = default if options.result_ttl is None else options.result_ttl
    if asked >= RESULT_KEPT_SECONDS:
        return options
    return options.using(result_ttl=RESULT_KEPT_SECONDS)
