"""Whether one tick runs: the gates in their order, and the reason of the first that is shut."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from django.db.models import Q

from django_jobs.clock import SECOND, to_datetime
from django_jobs.conf import get_settings
from django_jobs.cron import history
from django_jobs.cron.child_process import WHEN_SECONDS, Child, wait_for_any
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


# What a tick's dependencies say: go, wait, not at all, or ask again when they are decided.


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


ONE_RUNS_ONE_WAITS = 2
WHEN_AT_ONCE = 8
LOOK_UP_SECONDS = 0.2


class Verdict(NamedTuple):
    """A decision and its reason; None while a dependency has not been decided."""

    decision: TickDecision | None
    reason: str = ""

    @property
    def has_a_job(self) -> bool:
        return self.decision in _WITH_A_JOB


@dataclass(frozen=True, slots=True)
class Look:
    """A schedule that is due as it was seen before anything was locked."""

    key: str
    schedule: Schedule
    state: ScheduleState | None
    ticks: list[tuple[Planned, Verdict | None]]
    moves: bool

    @property
    def would_run(self) -> bool:
        return any(held is None for _, held in self.ticks)


_WITH_A_JOB = {TickDecision.ENQUEUED, TickDecision.CAUGHT_UP, TickDecision.PRESSED}


def without_user_code(
    schedule: Schedule, state: ScheduleState | None, one: Planned
) -> Verdict | None:
    """What keeps a tick from running as far as the schedule itself says so."""
    if not one.runs:
        return Verdict(TickDecision.MISSED, one.reason)
    if reason := shut(schedule, to_datetime(one.tick), get_settings().environment):
        return Verdict(TickDecision.SKIPPED, reason)
    if state is not None and state.paused:
        why = f": {state.reason}" if state.reason else ""
        return Verdict(TickDecision.SKIPPED, f"paused by {state.paused_by or 'nobody'}{why}")
    return None


def ask_when(
    schedules: Sequence[Schedule], given_up: Callable[[], bool] = lambda: False
) -> dict[str, str]:
    """Why the ``when`` of each schedule holds it back; "" where it does not.

    Each is asked in a child of its own, and its time begins with the child. A few at the same
    time, so that one that hangs holds up no other; not all, for a process each is dear. Those
    that were given up have no answer.
    """
    waiting = [schedule.name for schedule in reversed(schedules) if schedule.when is not None]
    children: dict[str, Child] = {}
    said: dict[str, str] = {}
    while (waiting or children) and not given_up():
        while waiting and len(children) < WHEN_AT_ONCE:
            name = waiting.pop()
            children[name] = Child("ask", (name,), WHEN_SECONDS)
        for name in [name for name, child in children.items() if child.is_over()]:
            child = children.pop(name)
            said[name] = _heard(child)
            child.close()
        if children:
            wait_for_any(children.values(), LOOK_UP_SECONDS)
    for child in children.values():
        child.kill()
        child.close()
    return said


def _heard(child: Child) -> str:
    how, told = child.answer()
    if how == "said":
        return "" if told else "its when said no"
    return f"its when failed: {told}"


def among_others(book: Book, schedule: Schedule, one: Planned, now: int) -> Verdict:
    """Ask the dependencies and the earlier ticks; to be called where nobody else decides."""
    held = by_dependencies(book, schedule, one, Decisions(book.alias, now))
    if held is not None:
        return held
    if overlapping := _overlap(book, schedule, now):
        return Verdict(TickDecision.SKIPPED, overlapping)
    return Verdict(TickDecision.CAUGHT_UP if one.late else TickDecision.ENQUEUED)


def by_dependencies(
    book: Book, schedule: Schedule, one: Planned, decisions: Decisions
) -> Verdict | None:
    """What its dependencies make of a tick; None when they let it run."""
    answer = asked(book, schedule, one.tick, decisions)
    if answer.says is Says.UNDECIDED:
        return Verdict(None, answer.why)
    if answer.says is Says.NO:
        return Verdict(TickDecision.SKIPPED, answer.why)
    if answer.says is Says.WAIT:
        late = decisions.now - one.tick
        if schedule.deadline is not None and late > schedule.deadline * SECOND:
            return Verdict(TickDecision.SKIPPED, f"its deadline is over and it still {answer.why}")
        return Verdict(TickDecision.WAITING, answer.why)
    return None


def _overlap(book: Book, schedule: Schedule, now: int) -> str:
    if schedule.overlap is Overlap.ALLOW:
        return ""
    rows = ScheduleTick.objects.using(book.alias)
    rows = rows.filter(key=schedule_key(schedule.name), outcome=TickOutcome.OPEN)
    found = list(rows.order_by("-tick")[:100])
    history.settle(book.alias, found, now)
    live = [row for row in found if row.outcome == TickOutcome.OPEN]
    if schedule.overlap is Overlap.SKIP and live:
        return f"the job {live[0].job_id} of an earlier tick has not ended"
    if len(live) >= ONE_RUNS_ONE_WAITS:
        return f"the job {live[0].job_id} waits already for an earlier one to end"
    return ""
