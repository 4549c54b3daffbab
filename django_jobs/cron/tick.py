"""The tick: decide what is due, each tick once, however many schedulers there are.

A scheduler locks the row of a schedule while it decides. It writes the row of the tick and the
job in one transaction, and a unique constraint guards against a second one. The time is that of
the store's clock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django.db import Error, connections
from django.db.models import Q

from django_jobs.backends.home import clock_of, jobs_database
from django_jobs.clock import SECOND, to_datetime
from django_jobs.cron import decide
from django_jobs.cron.book import Book, Planned, beginning, due_after, plan
from django_jobs.cron.decide import DecisionsOfMany, Look
from django_jobs.cron.history import (
    UNDECIDED,
    Decided,
    Recorder,
    emit_decided,
    locked,
)
from django_jobs.cron.inline import InlineJobs, aliases_of
from django_jobs.db.clock import for_people
from django_jobs.db.transactions import (
    in_reading,
    in_transition,
    is_conflict,
    is_connection_lost,
)
from django_jobs.models import ScheduleState, ScheduleTick, TickDecision, schedule_key
from django_jobs.retry import spread
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from django_jobs.cron.decide import TickVerdict
    from django_jobs.cron.schedule import Schedule


MOST_AT_ONCE = 200
"""How many schedules one tick decides at most, before signals and the like are checked."""
TOGETHER = 25
"""How many schedules share a transaction: other schedulers skip the rows it has locked."""
WAITING_AT_ONCE = 500
WAITING_PAGES = 4
"""How many pages of WAITING_AT_ONCE waiting ticks are checked before the due schedules."""
FORGOTTEN_AFTER = 86_400 * SECOND
"""A waiting tick is given up when its schedule has been unknown for so long."""
_FAILED, _UNDECIDED = (1.0, 30.0), (0.05, 5.0)
"""The first and the longest pause before a schedule is tried again."""


class _Undecided(Exception):
    """A dependency has not been decided by any scheduler: roll back."""

    def __init__(self, tick: int, why: str) -> None:
        self.tick = tick
        self.why = why


class Resting:
    """The schedules that cannot be decided now, and until when each is skipped.

    Otherwise a failing schedule would be tried without a pause, and many of them would keep out
    those behind.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, float]] = {}

    def put_off(self, key: str, first: float, longest: float) -> None:
        """Skip it for ``first`` seconds; twice as long each time, up to ``longest``."""
        _, before = self._until.get(key, (0.0, 0.0))
        pause = min(max(before * 2, first), longest)
        self._until[key] = time.monotonic() + spread(pause), pause

    def forget(self, key: str) -> None:
        """Stop skipping it: it was decided."""
        self._until.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._until.get(key, (0.0,))[0] > time.monotonic()

    def seconds_left(self, longest: float) -> float:
        """Seconds until the first of them is tried again, at most ``longest``."""
        now = time.monotonic()
        left = [ends - now for ends, _ in self._until.values() if ends > now]
        return min(left, default=longest)


class Ticker:
    """Decides the ticks for one scheduler. Not safe for several threads."""

    def __init__(
        self, *, using: str | None = None, hurried: Callable[[], bool] = lambda: False
    ) -> None:
        self._hurried = hurried
        self.alias = using or jobs_database()
        self.clock = clock_of(self.alias)
        self.book = Book(self.alias)
        self.inline = InlineJobs(self.alias)
        self.recorder = Recorder(self.alias, self.inline.enqueue)
        self.inline_aliases: Sequence[str] = ()
        self.is_behind = False
        self.undecided: dict[str, Decided] = {}
        self.resting = Resting()
        self._waiting_after: tuple[int, int] | None = None
        self._schedules_read: object = None

    def now(self) -> int:
        """Microseconds on the store's clock."""
        return in_reading(self.alias, lambda: self.clock.read(connections[self.alias]))

    def tick(self, *, only: Collection[str] | None = None, at: int | None = None) -> list[Decided]:
        """Decide what is due; afterwards ``is_behind`` says whether more is left.

        ``undecided`` has the schedules with a dependency that is not decided yet, by their keys.
        ``at``: a time to assume. Ticks due in that minute are decided as usual, and for good;
        ticks missed before are ignored, and no schedule moves on.
        """
        now = self.now()
        self.refresh(now)
        now = now if at is None else at
        chosen = _keys(only)
        decided = self._waiting(now, chosen)
        keys = self.book.due(now) if at is None else list(self.book.schedules)
        keys = [key for key in keys if chosen is None or key in chosen]
        self.undecided = {key: self.undecided[key] for key in self.undecided if key in keys}
        self.is_behind = self._waiting_after is not None
        if at is None:
            keys = [key for key in keys if key not in self.resting]
            self.is_behind |= len(keys) > MOST_AT_ONCE
            keys = keys[:MOST_AT_ONCE]
        states = self.states(keys)
        looked = [
            look
            for key in keys
            if (look := self._look(key, states.get(key), now, moves=at is None))
        ]
        gated = [look.schedule for look in looked if look.would_run]
        reasons = decide.ask_when(gated, self._hurried)
        if self._hurried():
            return decided  # another scheduler, or the next one, runs the gates again
        for start in range(0, len(looked), TOGETHER):
            decided += self._decide_together(looked[start : start + TOGETHER], reasons, now)
        return decided

    def seconds_left(self, longest: float, *, only: Collection[str] | None = None) -> float:
        """Seconds until something is due or to be tried again, at most ``longest``."""
        left = self.resting.seconds_left(longest)
        due = self.book.next_due(only=_keys(only), without=self.resting)
        if due is not None:
            left = min(left, (due - self.now()) / SECOND)
        return min(max(left, 0.0), longest)

    def refresh(self, now: int) -> None:
        """Pick up schedules that are new or have changed."""
        self.book.refresh(now)
        if self._schedules_read is not self.book.schedules:
            self._schedules_read = self.book.schedules
            self.inline_aliases = aliases_of(self.book.schedules.values())

    # Reading, before anything is locked.

    def states(self, keys: Collection[str]) -> dict[str, ScheduleState]:
        """The rows of schedules; all rows if there are many keys."""
        rows = ScheduleState.objects.using(self.alias)
        if len(keys) <= WAITING_AT_ONCE:
            rows = rows.filter(key__in=keys)
        return in_reading(self.alias, lambda: {row.key: row for row in rows})

    def _look(self, key: str, state: ScheduleState | None, now: int, *, moves: bool) -> Look | None:
        schedule = self.book.schedules[key]
        after = beginning(schedule, now)
        if moves:
            if state is None or state.decided_until >= now or self._is_of_others(state):
                return None
            # A clock that was behind for a moment may have set it back to before it began.
            begun = state.begun if state.begun <= now else 0
            after = max(state.decided_until, begun)
        planned = plan(schedule, after, now)
        if not planned and not moves:
            return None
        held = [decide.verdict_of_gates(schedule, state, tick) for tick in planned]
        return Look(key, schedule, state, list(zip(planned, held, strict=True)), moves=moves)

    def _is_of_others(self, state: ScheduleState) -> bool:
        """Whether the row belongs to other code, which reads this schedule differently."""
        return state.version != self.book.versions[state.key]

    def _verdict(
        self,
        look: Look,
        planned: Planned,
        held: TickVerdict | None,
        reasons: dict[str, str],
        now: int,
    ) -> TickVerdict:
        if held is not None:
            return held
        if why := reasons.get(look.schedule.name):
            return decide.TickVerdict(TickDecision.SKIPPED, why)
        return decide.verdict_among_others(self.book, look.schedule, planned, now)

    # Deciding, with the schedule's row locked.

    def _decide_together(
        self, looks: Sequence[Look], reasons: dict[str, str], now: int
    ) -> list[Decided]:
        """Decide several in one transaction, as a COMMIT is expensive; one by one if that fails."""

        def decide_look(look: Look) -> list[ScheduleTick]:
            return self._guarded(look.key, look.schedule, lambda: self._decide(look, reasons, now))

        try:
            rows = in_transition(self.alias, lambda _: [decide_look(look) for look in looks])
        except Error as error:
            if is_connection_lost(error):
                raise
            rows = [decide_look(look) for look in looks]
        return [emit_decided(row) for some in rows for row in some]

    def _guarded(
        self, key: str, schedule: Schedule, work: Callable[[], list[ScheduleTick]]
    ) -> list[ScheduleTick]:
        """Run the work of one schedule, so that its failure does not affect the others."""
        try:
            rows = in_transition(self.alias, lambda _: work())
        except _Undecided as held:
            self.undecided[key] = Decided(
                name=schedule.name,
                tick=to_datetime(held.tick),
                decision=UNDECIDED,
                reason=held.why,
            )
            self.resting.put_off(key, *_UNDECIDED)
            return []
        except Exception as error:
            is_nested = connections[self.alias].in_atomic_block
            if isinstance(error, Error) and (
                is_connection_lost(error) or (is_nested and is_conflict(error))
            ):
                raise
            self.resting.put_off(key, *_FAILED)
            events.emit(events.ScheduleFailed(schedule=schedule.name, error=error))
            return []
        self.resting.forget(key)
        self.undecided.pop(key, None)
        return rows

    def _decide(self, look: Look, reasons: dict[str, str], now: int) -> list[ScheduleTick]:
        if look.moves and not self._lock(look):
            return []  # another scheduler has decided it since, or is deciding it
        decided = []
        for planned, held in look.ticks:
            rows = ScheduleTick.objects.using(self.alias)
            if rows.filter(key=look.key, tick=planned.tick).exists():
                continue
            verdict = self._verdict(look, planned, held, reasons, now)
            if verdict.decision is None:
                raise _Undecided(planned.tick, verdict.reason)
            row = self.recorder.write(look.schedule, planned.tick, verdict, now)
            decided += [] if row is None else [row]
        if look.moves:
            ScheduleState.objects.using(self.alias).filter(key=look.key).update(
                decided_until=now, next_due=due_after(look.schedule, now)
            )
        return decided

    def _lock(self, look: Look) -> bool:
        """Lock the schedule, if it has not changed since it was read."""
        state = look.state
        if state is None:
            return False
        rows = locked(self.alias, ScheduleState).filter(
            key=look.key,
            decided_until=state.decided_until,
            version=state.version,
            paused=state.paused,
        )
        return rows.first() is not None

    # Ticks that wait for their dependencies.

    def _waiting(self, now: int, chosen: Collection[str] | None) -> list[Decided]:
        """Check the next ticks that wait for their dependencies; the next call continues there.

        Most of them still wait. That is checked for many at once, so that those that need not
        wait any longer do not come late.
        """
        decided: list[Decided] = []
        for _ in range(WAITING_PAGES):
            page = in_reading(self.alias, self._next_waiting)
            is_last = len(page) < WAITING_AT_ONCE
            self._waiting_after = None if is_last else (page[-1].tick, page[-1].pk)
            decided += self._decide_waiting(page, now, chosen)
            if is_last:
                break
        return decided

    def _next_waiting(self) -> list[ScheduleTick]:
        rows = ScheduleTick.objects.using(self.alias).filter(decision=TickDecision.WAITING)
        if self._waiting_after is not None:
            tick, pk = self._waiting_after
            rows = rows.filter(Q(tick__gt=tick) | Q(pk__gt=pk), tick__gte=tick)
        return list(rows.order_by("tick", "id")[:WAITING_AT_ONCE])

    def _decide_waiting(
        self, page: list[ScheduleTick], now: int, chosen: Collection[str] | None
    ) -> list[Decided]:
        page.sort(key=lambda row: self.book.rank.get(row.key, 0))
        waiting: list[tuple[ScheduleTick, Schedule]] = []
        for row in page:
            schedule = self.book.schedules.get(row.key)
            if schedule is None:
                self._give_up(row, now)
            elif (chosen is None or row.key in chosen) and row.key not in self.resting:
                waiting.append((row, schedule))
        if not waiting:
            return []
        states = self.states({row.key for row, _ in waiting})
        decisions = self._decisions(waiting, now)
        decided: list[Decided] = []
        for row, schedule in waiting:
            if decisions and self._still_waits(row, schedule, states.get(row.key), decisions):
                continue
            found_now = self._guarded(
                row.key,
                schedule,
                lambda row=row, schedule=schedule: self._decide_again(row, schedule, now),  # type: ignore[misc] # arguments' defaults
            )
            if decisions:
                decisions.note(found_now)
            decided += map(emit_decided, found_now)
        return decided

    def _decisions(
        self, rows: list[tuple[ScheduleTick, Schedule]], now: int
    ) -> DecisionsOfMany | None:
        waiting = [(schedule, row.tick) for row, schedule in rows]
        try:
            return in_reading(self.alias, lambda: DecisionsOfMany(self.book, now, waiting))
        except Error:
            raise
        except Exception:  # noqa: BLE001 - whatever a broker's client raises; each is read alone then
            return None

    def _still_waits(
        self,
        row: ScheduleTick,
        schedule: Schedule,
        state: ScheduleState | None,
        decisions: DecisionsOfMany,
    ) -> bool:
        """Whether deciding it with its rows locked would change nothing, by what was read."""
        if state is None:
            return True
        planned = Planned(row.tick, runs=True)
        if decide.verdict_of_gates(schedule, state, planned) is not None:
            return False
        verdict = decide.verdict_of_dependencies(self.book, schedule, planned, decisions)
        return verdict is not None and verdict.decision in {None, TickDecision.WAITING}

    def _give_up(self, row: ScheduleTick, now: int) -> None:
        """Skip a tick whose schedule is gone for long; newer code may know the schedule."""
        if row.decided_at < for_people(now - FORGOTTEN_AFTER):
            waits = ScheduleTick.objects.using(self.alias).filter(
                pk=row.pk, decision=TickDecision.WAITING
            )
            waits.update(
                decision=TickDecision.SKIPPED,
                reason="its schedule was removed or renamed while it waited",
                decided_at=for_people(now),
            )

    def _decide_again(self, row: ScheduleTick, schedule: Schedule, now: int) -> list[ScheduleTick]:
        # Lock the schedule first, as for a due tick, so that one scheduler at a time decides
        # whether jobs overlap.
        state = locked(self.alias, ScheduleState).filter(key=row.key).first()
        if state is None:
            return []
        rows = locked(self.alias, ScheduleTick)
        held = rows.filter(pk=row.pk, decision=TickDecision.WAITING).first()
        if held is None:
            return []
        planned = Planned(row.tick, runs=True)
        verdict = decide.verdict_of_gates(schedule, state, planned)
        verdict = verdict or decide.verdict_among_others(self.book, schedule, planned, now)
        if verdict.decision in {None, TickDecision.WAITING}:
            return []
        held.decision, held.reason = str(verdict.decision), verdict.reason
        held.decided_at = for_people(now)
        held.save(using=self.alias)
        if verdict.has_a_job:
            self.recorder.enqueue_job(schedule, held)
        return [held]


def _keys(names: Collection[str] | None) -> set[str] | None:
    return None if names is None else {schedule_key(name) for name in names}


# A dry run: what a tick would do and why, without writing anything.


class Preview(Ticker):
    """A scheduler that only reports. It runs ``when`` gates in children as usual."""

    def __init__(self, *, using: str | None = None) -> None:
        super().__init__(using=using)
        self.book = Book(self.alias, writes=False)

    def decisions(
        self, *, only: Collection[str] | None = None, at: int | None = None
    ) -> list[Decided]:
        """What ``tick`` would decide, for every schedule."""
        now = self.now() if at is None else at
        self.refresh(now)
        states = self.states(self.book.schedules)
        decided = []
        for key, schedule in self.book.schedules.items():
            if only is None or schedule.name in only:
                decided += self._decisions_of(key, schedule, states.get(key), now, moves=at is None)
        return decided

    def _decisions_of(
        self, key: str, schedule: Schedule, state: ScheduleState | None, now: int, *, moves: bool
    ) -> list[Decided]:
        look = self._look(key, state, now, moves=moves)
        if look is None and moves and (state is None or self._is_of_others(state)):
            planned = plan(schedule, beginning(schedule, now), now)
            held = [decide.verdict_of_gates(schedule, state, entry) for entry in planned]
            ticks = list(zip(planned, held, strict=True))
            look = decide.Look(key, schedule, state, ticks, moves=True)
        if look is None or not look.ticks:
            return [_not_due(schedule, now)]
        reasons = decide.ask_when([schedule] if look.would_run else [])
        return [
            _decided(
                schedule,
                entry.tick,
                self._before(key, entry.tick) or self._verdict(look, entry, held, reasons, now),
            )
            for entry, held in look.ticks
        ]

    def _before(self, key: str, tick: int) -> TickVerdict | None:
        """What has been decided for a tick already."""
        row = ScheduleTick.objects.using(self.alias).filter(key=key, tick=tick).first()
        if row is None:
            return None
        why = f": {row.reason}" if row.reason else ""
        return decide.TickVerdict(TickDecision(row.decision), f"decided already{why}")


def _not_due(schedule: Schedule, now: int) -> Decided:
    due = due_after(schedule, now)
    moment = to_datetime(now if due is None else due)
    why = "it is never due again" if due is None else "not due before then"
    return Decided(name=schedule.name, tick=moment, decision="not-due", reason=why)


def _decided(schedule: Schedule, tick: int, verdict: TickVerdict) -> Decided:
    decision = verdict.decision or TickDecision.WAITING
    return Decided(
        name=schedule.name, tick=to_datetime(tick), decision=str(decision), reason=verdict.reason
    )
