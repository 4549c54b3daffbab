"""What a tick's dependencies say: go, wait, not at all, or ask again when they are decided."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from django_jobs.clock import to_datetime
from django_jobs.cron import outcomes
from django_jobs.cron.occurrences import next_after
from django_jobs.cron.schedule import Dependency
from django_jobs.models import (
    ScheduleState,
    ScheduleTick,
    TickDecision,
    TickOutcome,
    schedule_key,
)

if TYPE_CHECKING:
    from django_jobs.cron.book import Book
    from django_jobs.cron.schedule import Schedule

_WITHOUT_A_JOB = {TickDecision.SKIPPED, TickDecision.MISSED, TickDecision.FAILED}
_WELL = {TickOutcome.SUCCEEDED, TickOutcome.SKIPPED}


class Says(Enum):
    """What a dependency means for the tick that depends on it."""

    GO = 0
    WAIT = 1
    NO = 2
    UNDECIDED = 3


class Answer(NamedTuple):
    """What is to be done, and why."""

    says: Says
    why: str = ""


GO = Answer(Says.GO)


def asked(book: Book, schedule: Schedule, tick: int, now: int) -> Answer:
    """The answer of the strictest of the dependencies that are due at this tick too."""
    answers = [
        _of_one(book, schedule, found, tick, now)
        for name in schedule.depends_on
        if (found := book.by_name(name)) is not None and is_due_at(found, tick)
    ]
    return max(answers, key=lambda answer: answer.says.value, default=GO)


def is_due_at(schedule: Schedule, tick: int) -> bool:
    """Whether a moment is one of a schedule's ticks."""
    moment = to_datetime(tick)
    return next_after(schedule, to_datetime(tick - 1)) == moment


def _of_one(book: Book, schedule: Schedule, other: Schedule, tick: int, now: int) -> Answer:
    key = schedule_key(other.name)
    row = ScheduleTick.objects.using(book.alias).filter(key=key, tick=tick).first()
    must_succeed = schedule.dependency is Dependency.SUCCEEDED
    if row is None:
        state = ScheduleState.objects.using(book.alias).filter(key=key).first()
        if state is not None and state.decided_until < tick:
            return Answer(Says.UNDECIDED)
        return Answer(Says.NO, f"{other.name} did not run at this tick") if must_succeed else GO
    if row.decision == TickDecision.WAITING:
        return Answer(Says.WAIT, f"waits for {other.name}, which waits itself")
    return _of_its_job(book, other, row, now) if must_succeed else GO


def _of_its_job(book: Book, other: Schedule, row: ScheduleTick, now: int) -> Answer:
    if row.decision in _WITHOUT_A_JOB:
        return Answer(Says.NO, f"{other.name} was {row.get_decision_display()} at this tick")
    outcomes.settle(book.alias, [row], now)
    if row.outcome == TickOutcome.OPEN:
        return Answer(Says.WAIT, f"waits for {other.name}")
    if row.outcome in _WELL:
        return GO
    return Answer(Says.NO, f"the run of {other.name} at this tick ended as {row.outcome}")
