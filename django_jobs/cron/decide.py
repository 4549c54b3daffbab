"""Decide whether one tick runs: its gates, its dependencies, and earlier ticks that overlap."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from django.db.models import Q

from django_jobs.clock import SECOND, to_datetime
from django_jobs.conf import get_settings
from django_jobs.cron import history
from django_jobs.cron.child_process import WHEN_SECONDS, UserCodeProcess, wait_for_any
from django_jobs.cron.gates import shut
from django_jobs.cron.occurrences import next_after
from django_jobs.cron.options import Dependency, Overlap
from django_jobs.models import (
    ScheduleState,
    ScheduleTick,
    TickDecision,
    TickOutcome,
    schedule_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from django_jobs.cron.book import Book, Planned
    from django_jobs.cron.schedule import Schedule


# Dependencies: whether they let a tick run, make it wait, or keep it from running.


KEYS_PER_STATEMENT = 100
_WITHOUT_A_JOB = {TickDecision.SKIPPED, TickDecision.MISSED, TickDecision.FAILED}
_WELL = {TickOutcome.SUCCEEDED, TickOutcome.SKIPPED}


class Effect(Enum):
    """What a dependency means for the tick that depends on it."""

    GO = 0
    WAIT = 1
    NO = 2
    UNDECIDED = 3


class DependencyAnswer(NamedTuple):
    """The effect of a dependency, and the reason."""

    effect: Effect
    why: str = ""


GO = DependencyAnswer(Effect.GO)


class Decisions:
    """What was decided for dependencies, read on demand."""

    def __init__(self, alias: str, now: int) -> None:
        self.alias = alias
        self.now = now

    def tick(self, key: str, tick: int) -> ScheduleTick | None:
        return ScheduleTick.objects.using(self.alias).filter(key=key, tick=tick).first()

    def decided_until(self, key: str) -> int | None:
        rows = ScheduleState.objects.using(self.alias).filter(key=key)
        return rows.values_list("decided_until", flat=True).first()

    def settle(self, row: ScheduleTick) -> None:
        """Update the outcome of a tick's job."""
        history.settle(self.alias, [row], self.now)


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
        history.settle(self.alias, list(self._ticks.values()), now)

    def _read(self, wanted: Mapping[str, Collection[int]]) -> None:
        condition = Q()
        for key, ticks in wanted.items():
            condition |= Q(key=key, tick__in=ticks)
        for row in ScheduleTick.objects.using(self.alias).filter(condition):
            self._ticks[row.key, row.tick] = row
        states = ScheduleState.objects.using(self.alias).filter(key__in=wanted)
        self._decided_until.update(states.values_list("key", "decided_until"))

    def tick(self, key: str, tick: int) -> ScheduleTick | None:
        return self._ticks.get((key, tick))

    def decided_until(self, key: str) -> int | None:
        return self._decided_until.get(key)

    def settle(self, row: ScheduleTick) -> None:
        """Nothing to do: all outcomes were updated when the rows were read."""

    def note(self, rows: Iterable[ScheduleTick]) -> None:
        """Add rows that have been decided since."""
        self._ticks.update(((row.key, row.tick), row) for row in rows)


def dependencies_answer(
    book: Book, schedule: Schedule, tick: int, decisions: Decisions
) -> DependencyAnswer:
    """The strictest answer of the dependencies that have this tick too."""
    answers = [
        _dependency_answer(schedule, other, tick, decisions)
        for other in due_dependencies(book, schedule, tick)
    ]
    return max(answers, key=lambda answer: answer.effect.value, default=GO)


def due_dependencies(book: Book, schedule: Schedule, tick: int) -> list[Schedule]:
    """The dependencies that have this tick too."""
    schedules = map(book.by_name, schedule.depends_on)
    return [other for other in schedules if other is not None and is_due_at(other, tick)]


def is_due_at(schedule: Schedule, tick: int) -> bool:
    """Whether a moment is one of a schedule's ticks."""
    moment = to_datetime(tick)
    return next_after(schedule, to_datetime(tick - 1)) == moment


def _dependency_answer(
    schedule: Schedule, other: Schedule, tick: int, decisions: Decisions
) -> DependencyAnswer:
    key = schedule_key(other.name)
    row = decisions.tick(key, tick)
    must_succeed = schedule.dependency is Dependency.SUCCEEDED
    if row is None:
        until = decisions.decided_until(key)
        if until is not None and until < tick:
            return DependencyAnswer(
                Effect.UNDECIDED, f"waits for {other.name}, which no scheduler has decided"
            )
        return (
            DependencyAnswer(Effect.NO, f"{other.name} did not run at this tick")
            if must_succeed
            else GO
        )
    if row.decision == TickDecision.WAITING:
        return DependencyAnswer(Effect.WAIT, f"waits for {other.name}, which waits itself")
    return _job_answer(other, row, decisions) if must_succeed else GO


def _job_answer(other: Schedule, row: ScheduleTick, decisions: Decisions) -> DependencyAnswer:
    if row.decision in _WITHOUT_A_JOB:
        return DependencyAnswer(
            Effect.NO, f"{other.name} was {row.get_decision_display()} at this tick"
        )
    decisions.settle(row)
    if row.outcome == TickOutcome.OPEN:
        return DependencyAnswer(Effect.WAIT, f"waits for {other.name}")
    if row.outcome in _WELL:
        return GO
    return DependencyAnswer(
        Effect.NO, f"the run of {other.name} at this tick ended as {row.outcome}"
    )


# Verdicts: what becomes of a tick.


ONE_RUNS_ONE_WAITS = 2
WHEN_AT_ONCE = 8
LOOK_UP_SECONDS = 0.2


class TickVerdict(NamedTuple):
    """A decision and its reason; the decision is None while a dependency is undecided."""

    decision: TickDecision | None
    reason: str = ""

    @property
    def has_a_job(self) -> bool:
        return self.decision in _WITH_A_JOB


@dataclass(frozen=True, slots=True)
class Look:
    """A due schedule as it was read before anything was locked."""

    key: str
    schedule: Schedule
    state: ScheduleState | None
    ticks: list[tuple[Planned, TickVerdict | None]]
    moves: bool

    @property
    def would_run(self) -> bool:
        return any(held is None for _, held in self.ticks)


_WITH_A_JOB = {TickDecision.ENQUEUED, TickDecision.CAUGHT_UP, TickDecision.PRESSED}


def verdict_of_gates(
    schedule: Schedule, state: ScheduleState | None, planned: Planned
) -> TickVerdict | None:
    """What keeps a tick from running by the schedule itself; does not run its ``when``."""
    if not planned.runs:
        return TickVerdict(TickDecision.MISSED, planned.reason)
    if reason := shut(schedule, to_datetime(planned.tick), get_settings().environment):
        return TickVerdict(TickDecision.SKIPPED, reason)
    if state is not None and state.paused:
        why = f": {state.reason}" if state.reason else ""
        actor = state.paused_by or "an unknown user"
        return TickVerdict(TickDecision.SKIPPED, f"paused by {actor}{why}")
    return None


def ask_when(
    schedules: Sequence[Schedule], given_up: Callable[[], bool] = lambda: False
) -> dict[str, str]:
    """Why the ``when`` of each schedule holds it back; "" if it does not.

    Each runs in a child of its own, and its time limit begins with the child. A few run at once,
    so that one that hangs does not hold up the others; not all, as a process each is expensive.
    If ``given_up``, the rest have no entry.
    """
    waiting = [schedule.name for schedule in reversed(schedules) if schedule.when is not None]
    children: dict[str, UserCodeProcess] = {}
    reasons: dict[str, str] = {}
    while (waiting or children) and not given_up():
        while waiting and len(children) < WHEN_AT_ONCE:
            name = waiting.pop()
            children[name] = UserCodeProcess("ask", (name,), WHEN_SECONDS)
        for name in [name for name, child in children.items() if child.is_over()]:
            child = children.pop(name)
            reasons[name] = _reason_of(child)
            child.close()
        if children:
            wait_for_any(children.values(), LOOK_UP_SECONDS)
    for child in children.values():
        child.kill()
        child.close()
    return reasons


def _reason_of(child: UserCodeProcess) -> str:
    ending, value = child.answer()
    if ending == "returned":
        return "" if value else "its when said no"
    return f"its when failed: {value}"


def verdict_among_others(book: Book, schedule: Schedule, planned: Planned, now: int) -> TickVerdict:
    """Decide by the dependencies and earlier ticks; call it with the schedule's row locked."""
    held = verdict_of_dependencies(book, schedule, planned, Decisions(book.alias, now))
    if held is not None:
        return held
    if overlapping := _overlap_reason(book, schedule, now):
        return TickVerdict(TickDecision.SKIPPED, overlapping)
    return TickVerdict(TickDecision.CAUGHT_UP if planned.late else TickDecision.ENQUEUED)


def verdict_of_dependencies(
    book: Book, schedule: Schedule, planned: Planned, decisions: Decisions
) -> TickVerdict | None:
    """The verdict of a tick's dependencies; None if they let it run."""
    answer = dependencies_answer(book, schedule, planned.tick, decisions)
    if answer.effect is Effect.UNDECIDED:
        return TickVerdict(None, answer.why)
    if answer.effect is Effect.NO:
        return TickVerdict(TickDecision.SKIPPED, answer.why)
    if answer.effect is Effect.WAIT:
        late = decisions.now - planned.tick
        if schedule.deadline is not None and late > schedule.deadline * SECOND:
            return TickVerdict(
                TickDecision.SKIPPED, f"its deadline is over and it still {answer.why}"
            )
        return TickVerdict(TickDecision.WAITING, answer.why)
    return None


def _overlap_reason(book: Book, schedule: Schedule, now: int) -> str:
    if schedule.overlap is Overlap.ALLOW:
        return ""
    rows = ScheduleTick.objects.using(book.alias)
    rows = rows.filter(key=schedule_key(schedule.name), outcome=TickOutcome.OPEN)
    ticks = list(rows.order_by("-tick")[:100])
    history.settle(book.alias, ticks, now)
    live = [row for row in ticks if row.outcome == TickOutcome.OPEN]
    if schedule.overlap is Overlap.SKIP and live:
        return f"the job {live[0].job_id} of an earlier tick has not ended"
    if len(live) >= ONE_RUNS_ONE_WAITS:
        return f"the job {live[0].job_id} waits already for an earlier one to end"
    return ""
