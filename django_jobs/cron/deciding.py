"""Whether one tick runs: the gates in their order, and the reason of the first that is shut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from django_jobs.clock import SECOND, to_datetime
from django_jobs.conf import get_settings
from django_jobs.cron import depending, outcomes
from django_jobs.cron.children import WHEN_SECONDS, Child, wait_for_any
from django_jobs.cron.depending import Decisions, Says
from django_jobs.cron.gates import shut
from django_jobs.cron.schedule import Overlap
from django_jobs.models import ScheduleTick, TickDecision, TickOutcome, schedule_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.cron.book import Book
    from django_jobs.cron.planning import Planned
    from django_jobs.cron.schedule import Schedule
    from django_jobs.models import ScheduleState

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
    if held := shut(schedule, to_datetime(one.tick), get_settings().environment):
        return Verdict(TickDecision.SKIPPED, held.reason)
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
    answer = depending.asked(book, schedule, one.tick, decisions)
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
    outcomes.settle(book.alias, found, now)
    live = [row for row in found if row.outcome == TickOutcome.OPEN]
    if schedule.overlap is Overlap.SKIP and live:
        return f"the job {live[0].job_id} of an earlier tick has not ended"
    if len(live) >= ONE_RUNS_ONE_WAITS:
        return f"the job {live[0].job_id} waits already for an earlier one to end"
    return ""
