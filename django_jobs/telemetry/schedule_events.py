"""What happens to schedules. Everybody imports these from ``events``."""

from __future__ import annotations

from dataclasses import dataclass

from django_jobs.telemetry.job_events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class TickDecided(Event):
    """A scheduler decided a tick. ``decision`` is one of the words of the history."""

    schedule: str
    tick: str
    decision: str
    reason: str = ""
    job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFailed(Event):
    """A schedule could not be decided; it is looked at again at the next tick."""

    schedule: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleUndecided(Event):
    """A tick has waited some seconds for a dependency that no scheduler decides; told once."""

    schedule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockWasAhead(Event):
    """Schedules were decided by a clock that was ahead of the store's: they begin anew.

    ``seconds``: by how much, at most.
    """

    schedules: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleUnreadable(Event):
    """A schedule of the admin was right when it was saved, and is so no more: it is left out."""

    schedule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOfOtherCode(Event):
    """A schedule has the moments of other code: a newer one, or one that is gone."""

    schedule: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStarted(Event):
    """A scheduler begins to tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStopped(Event):
    """A scheduler has ended in good order."""

    why: str
