"""What a tick's dependencies say: go, wait, not at all, or ask again when they are decided."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from django.db.models import Q

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
    from collections.abc import Collection, Iterable, Mapping

    from django_jobs.cron.book import Book
    from django_jobs.cron.schedule import Schedule

KEYS_PER_STATEMENT = 100
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


class Decisions:
    """What was decided for dependencies, read when it is asked for."""

    def __init__(self, alias: str, now: int) -> None:
        self.alias = alias
        self.now = now

    def tick(self, key: str, tick: int) -> ScheduleTick | None:
        return ScheduleTick.objects.using(self.alias).filter(key=key, tick=tick).first()

    def decided_until(self, key: str) -> int | None:
        rows = ScheduleState.objects.using(self.alias).filter(key=key)
        return rows.values_list("decided_until", flat=True).first()

    def settle(self, row: ScheduleTick) -> None:
        """Bring up to date how the job of a tick ended."""
        outcomes.settle(self.alias, [row], self.now)


class DecisionsOfMany(Decisions):
    """The same for the dependencies of many ticks, read with a few statements."""

    def __init__(self, book: Book, now: int, waiting: Iterable[tuple[Schedule, int]]) -> None:
        super().__init__(book.alias, now)
        wanted: dict[str, set[int]] = {}
        for schedule, tick in waiting:
            for other in due_dependencies(book, schedule, tick):
                wanted.setdefault(schedule_key(other.name), set()).add(tick)
        self._ticks: dict[tuple[str, int], ScheduleTick] = {}
        self._decided_until: dict[str, int] = {}
        keys = list(wanted)
        for start in range(0, len(keys), KEYS_PER_STATEMENT):
            self._read({key: wanted[key] for key in keys[start : start + KEYS_PER_STATEMENT]})
        outcomes.settle(self.alias, list(self._ticks.values()), now)

    def _read(self, wanted: Mapping[str, Collection[int]]) -> None:
        of_them = Q()
        for key, ticks in wanted.items():
            of_them |= Q(key=key, tick__in=ticks)
        for row in ScheduleTick.objects.using(self.alias).filter(of_them):
            self._ticks[row.key, row.tick] = row
        states = ScheduleState.objects.using(self.alias).filter(key__in=wanted)
        self._decided_until.update(states.values_list("key", "decided_until"))

    def tick(self, key: str, tick: int) -> ScheduleTick | None:
        return self._ticks.get((key, tick))

    def decided_until(self, key: str) -> int | None:
        return self._decided_until.get(key)

    def settle(self, row: ScheduleTick) -> None:
        """All of them were when they were read."""

    def note(self, rows: Iterable[ScheduleTick]) -> None:
        """Take over rows that were decided since."""
        self._ticks.update(((row.key, row.tick), row) for row in rows)


def asked(book: Book, schedule: Schedule, tick: int, decisions: Decisions) -> Answer:
    """The answer of the strictest of the dependencies that are due at this tick too."""
    answers = [
        _of_one(schedule, found, tick, decisions)
        for found in due_dependencies(book, schedule, tick)
    ]
    return max(answers, key=lambda answer: answer.says.value, default=GO)


def due_dependencies(book: Book, schedule: Schedule, tick: int) -> list[Schedule]:
    """The dependencies that have this tick too."""
    found = map(book.by_name, schedule.depends_on)
    return [one for one in found if one is not None and is_due_at(one, tick)]


def is_due_at(schedule: Schedule, tick: int) -> bool:
    """Whether a moment is one of a schedule's ticks."""
    moment = to_datetime(tick)
    return next_after(schedule, to_datetime(tick - 1)) == moment


def _of_one(schedule: Schedule, other: Schedule, tick: int, decisions: Decisions) -> Answer:
    key = schedule_key(other.name)
    row = decisions.tick(key, tick)
    must_succeed = schedule.dependency is Dependency.SUCCEEDED
    if row is None:
        until = decisions.decided_until(key)
        if until is not None and until < tick:
            return Answer(Says.UNDECIDED, f"waits for {other.name}, which no scheduler has decided")
        return Answer(Says.NO, f"{other.name} did not run at this tick") if must_succeed else GO
    if row.decision == TickDecision.WAITING:
        return Answer(Says.WAIT, f"waits for {other.name}, which waits itself")
    return _of_its_job(other, row, decisions) if must_succeed else GO


def _of_its_job(other: Schedule, row: ScheduleTick, decisions: Decisions) -> Answer:
    if row.decision in _WITHOUT_A_JOB:
        return Answer(Says.NO, f"{other.name} was {row.get_decision_display()} at this tick")
    decisions.settle(row)
    if row.outcome == TickOutcome.OPEN:
        return Answer(Says.WAIT, f"waits for {other.name}")
    if row.outcome in _WELL:
        return GO
    return Answer(Says.NO, f"the run of {other.name} at this tick ended as {row.outcome}")
