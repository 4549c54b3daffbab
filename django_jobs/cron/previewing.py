"""What a tick would do, and why not; nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.clock import to_datetime
from django_jobs.cron import deciding
from django_jobs.cron.book import Book, due_after
from django_jobs.cron.planning import beginning, plan
from django_jobs.cron.recording import Decided
from django_jobs.cron.ticking import Ticker
from django_jobs.models import ScheduleTick, TickDecision

if TYPE_CHECKING:
    from collections.abc import Collection

    from django_jobs.cron.deciding import Verdict
    from django_jobs.cron.schedule import Schedule
    from django_jobs.models import ScheduleState


class Preview(Ticker):
    """A scheduler that only tells. ``when`` gates are asked, in children, as ever."""

    def __init__(self, *, using: str | None = None) -> None:
        super().__init__(using=using)
        self.book = Book(self.alias, writes=False)

    def tell(self, *, only: Collection[str] | None = None, at: int | None = None) -> list[Decided]:
        """What ``tick`` would decide, for every schedule."""
        now = self.now() if at is None else at
        self.refresh(now)
        states = self.states(self.book.schedules)
        told = []
        for key, schedule in self.book.schedules.items():
            if only is None or schedule.name in only:
                told += self._told(key, schedule, states.get(key), now, moves=at is None)
        return told

    def _told(
        self, key: str, schedule: Schedule, state: ScheduleState | None, now: int, *, moves: bool
    ) -> list[Decided]:
        look = self._look(key, state, now, moves=moves)
        if look is None and moves and (state is None or self._is_of_others(state)):
            planned = plan(schedule, beginning(schedule, now), now)
            held = [deciding.without_user_code(schedule, state, one) for one in planned]
            ticks = list(zip(planned, held, strict=True))
            look = deciding.Look(key, schedule, state, ticks, moves=True)
        if look is None or not look.ticks:
            return [_not_due(schedule, now)]
        said = deciding.ask_when([schedule] if look.would_run else [])
        return [
            _decided(
                schedule,
                one.tick,
                self._before(key, one.tick) or self._judged(look, one, held, said, now),
            )
            for one, held in look.ticks
        ]

    def _before(self, key: str, tick: int) -> Verdict | None:
        """What was decided for a tick already."""
        found = ScheduleTick.objects.using(self.alias).filter(key=key, tick=tick).first()
        if found is None:
            return None
        why = f": {found.reason}" if found.reason else ""
        return deciding.Verdict(TickDecision(found.decision), f"decided already{why}")


def _not_due(schedule: Schedule, now: int) -> Decided:
    due = due_after(schedule, now)
    moment = to_datetime(now if due is None else due)
    why = "it is never due again" if due is None else "not due before then"
    return Decided(name=schedule.name, tick=moment, decision="not-due", reason=why)


def _decided(schedule: Schedule, tick: int, verdict: Verdict) -> Decided:
    decision = verdict.decision or TickDecision.WAITING
    return Decided(
        name=schedule.name, tick=to_datetime(tick), decision=str(decision), reason=verdict.reason
    )
