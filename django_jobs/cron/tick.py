"""The tick: what is due is decided, once for each tick, however many schedulers there are.

Whoever decides holds the row of the schedule; the row of the tick and the job of it come in
one transaction, and a constraint stands behind it all. What time it is the store says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import Error, connections
from django.db.models import Q

from django_jobs.backends.home import clock_of, jobs_database
from django_jobs.backoff import Resting
from django_jobs.clock import SECOND, to_datetime
from django_jobs.cron import decide
from django_jobs.cron.book import Book, Planned, beginning, due_after, plan
from django_jobs.cron.decide import DecisionsOfMany, Look
from django_jobs.cron.history import (
    UNDECIDED,
    Decided,
    Recorder,
    locked,
    told,
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
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from django_jobs.cron.decide import Verdict
    from django_jobs.cron.schedule import Schedule


MOST_AT_ONCE = 200
"""How many schedules are decided between two looks at the world outside."""
TOGETHER = 25
"""So many share a transaction: other schedulers pass over what it holds."""
WAITING_AT_ONCE = 500
WAITING_PAGES = 4
"""So many times so many ticks that wait are looked at before what is due has its turn."""
FORGOTTEN_AFTER = 86_400 * SECOND
"""A tick that waits is given up when for so long nobody knew its schedule."""
_FAILED, _UNDECIDED = (1.0, 30.0), (0.05, 5.0)
"""The first pause and the longest until a schedule is tried again."""


class _Undecided(Exception):
    """A dependency has not been decided, here or elsewhere: nothing of this is to last."""

    def __init__(self, tick: int, why: str) -> None:
        self.tick = tick
        self.why = why


class Ticker:
    """One scheduler's engine. Not safe for several threads."""

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
        self._known: object = None

    def now(self) -> int:
        """Microseconds on the store's clock."""
        return in_reading(self.alias, lambda: self.clock.read(connections[self.alias]))

    def tick(self, *, only: Collection[str] | None = None, at: int | None = None) -> list[Decided]:
        """Decide what is due; ``is_behind`` tells whether more of it is left.

        ``undecided`` are those with a dependency that was not decided yet, by their keys.
        ``at``: as if it were then. What is due in that minute is decided as ever, and counts
        for good; what was missed before is not looked at, and no schedule moves on.
        """
        now = self.now()
        self.refresh(now)
        now = now if at is None else at
        chosen = _keys(only)
        decided = self._waiting(now, chosen)
        keys = self.book.due(now) if at is None else list(self.book.schedules)
        keys = [key for key in keys if chosen is None or key in chosen]
        self.undecided = {key: one for key, one in self.undecided.items() if key in keys}
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
        said = decide.ask_when(gated, self._hurried)
        if self._hurried():
            return decided  # another scheduler, or the next one, asks anew
        for start in range(0, len(looked), TOGETHER):
            decided += self._together(looked[start : start + TOGETHER], said, now)
        return decided

    def seconds_left(self, longest: float, *, only: Collection[str] | None = None) -> float:
        """Until something is due, or to be tried again; but no more than ``longest``."""
        left = self.resting.seconds_left(longest)
        due = self.book.next_due(only=_keys(only), without=self.resting)
        if due is not None:
            left = min(left, (due - self.now()) / SECOND)
        return min(max(left, 0.0), longest)

    def refresh(self, now: int) -> None:
        """Take note of schedules that are new or were changed."""
        self.book.refresh(now)
        if self._known is not self.book.schedules:
            self._known = self.book.schedules
            self.inline_aliases = aliases_of(self.book.schedules.values())

    # ------------------------------------------------------------------------------- looking

    def states(self, keys: Collection[str]) -> dict[str, ScheduleState]:
        """The rows of schedules; of most of them means of all."""
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
            # A clock that was behind for a moment has set it back, maybe to before it began.
            begun = state.begun if state.begun <= now else 0
            after = max(state.decided_until, begun)
        planned = plan(schedule, after, now)
        if not planned and not moves:
            return None
        held = [decide.without_user_code(schedule, state, one) for one in planned]
        return Look(key, schedule, state, list(zip(planned, held, strict=True)), moves=moves)

    def _is_of_others(self, state: ScheduleState) -> bool:
        """Whether other code reads this schedule differently, and has its row."""
        return state.version != self.book.versions[state.key]

    def _judged(
        self,
        look: Look,
        one: Planned,
        held: Verdict | None,
        said: dict[str, str],
        now: int,
    ) -> Verdict:
        if held is not None:
            return held
        if why := said.get(look.schedule.name):
            return decide.Verdict(TickDecision.SKIPPED, why)
        return decide.among_others(self.book, look.schedule, one, now)

    # ------------------------------------------------------------------------------ deciding

    def _together(self, looks: Sequence[Look], said: dict[str, str], now: int) -> list[Decided]:
        """Several in one transaction, for a COMMIT is dear; each by itself where that fails."""

        def one(look: Look) -> list[ScheduleTick]:
            return self._guarded(look.key, look.schedule, lambda: self._decide(look, said, now))

        try:
            found = in_transition(self.alias, lambda _: [one(look) for look in looks])
        except Error as error:
            if is_connection_lost(error):
                raise
            found = [one(look) for look in looks]
        return [told(row) for some in found for row in some]

    def _guarded(
        self, key: str, schedule: Schedule, work: Callable[[], list[ScheduleTick]]
    ) -> list[ScheduleTick]:
        """One schedule that goes wrong does not keep the others from their tick."""
        try:
            found = in_transition(self.alias, lambda _: work())
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
        return found

    def _decide(self, look: Look, said: dict[str, str], now: int) -> list[ScheduleTick]:
        if look.moves and not self._hold(look):
            return []  # another scheduler decided it meanwhile, or does so now
        decided = []
        for one, held in look.ticks:
            rows = ScheduleTick.objects.using(self.alias)
            if rows.filter(key=look.key, tick=one.tick).exists():
                continue
            verdict = self._judged(look, one, held, said, now)
            if verdict.decision is None:
                raise _Undecided(one.tick, verdict.reason)
            found = self.recorder.write(look.schedule, one.tick, verdict, now)
            decided += [] if found is None else [found]
        if look.moves:
            ScheduleState.objects.using(self.alias).filter(key=look.key).update(
                decided_until=now, next_due=due_after(look.schedule, now)
            )
        return decided

    def _hold(self, look: Look) -> bool:
        """Lock the schedule, if it stands as it did when it was looked at."""
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

    # ------------------------------------------------------------------------------- waiting

    def _waiting(self, now: int, chosen: Collection[str] | None) -> list[Decided]:
        """Look again at ticks that wait for their dependencies, and go on there next time.

        Most of them still wait. That is found out for many at once, so that none of those
        that need not wait any more is far behind others.
        """
        decided: list[Decided] = []
        for _ in range(WAITING_PAGES):
            found = in_reading(self.alias, self._next_waiting)
            is_last = len(found) < WAITING_AT_ONCE
            self._waiting_after = None if is_last else (found[-1].tick, found[-1].pk)
            decided += self._look_at_waiting(found, now, chosen)
            if is_last:
                break
        return decided

    def _next_waiting(self) -> list[ScheduleTick]:
        rows = ScheduleTick.objects.using(self.alias).filter(decision=TickDecision.WAITING)
        if self._waiting_after is not None:
            tick, pk = self._waiting_after
            rows = rows.filter(Q(tick__gt=tick) | Q(pk__gt=pk), tick__gte=tick)
        return list(rows.order_by("tick", "id")[:WAITING_AT_ONCE])

    def _look_at_waiting(
        self, found: list[ScheduleTick], now: int, chosen: Collection[str] | None
    ) -> list[Decided]:
        found.sort(key=lambda row: self.book.rank.get(row.key, 0))
        known: list[tuple[ScheduleTick, Schedule]] = []
        for row in found:
            schedule = self.book.schedules.get(row.key)
            if schedule is None:
                self._give_up(row, now)
            elif (chosen is None or row.key in chosen) and row.key not in self.resting:
                known.append((row, schedule))
        if not known:
            return []
        states = self.states({row.key for row, _ in known})
        decisions = self._decisions(known, now)
        decided: list[Decided] = []
        for row, schedule in known:
            if decisions and self._still_waits(row, schedule, states.get(row.key), decisions):
                continue
            found_now = self._guarded(
                row.key,
                schedule,
                lambda row=row, schedule=schedule: self._look_again(row, schedule, now),  # type: ignore[misc] # arguments' defaults
            )
            if decisions:
                decisions.note(found_now)
            decided += map(told, found_now)
        return decided

    def _decisions(
        self, known: list[tuple[ScheduleTick, Schedule]], now: int
    ) -> DecisionsOfMany | None:
        waiting = [(schedule, row.tick) for row, schedule in known]
        try:
            return in_reading(self.alias, lambda: DecisionsOfMany(self.book, now, waiting))
        except Error:
            raise
        except Exception:  # noqa: BLE001 - whatever a broker's client raises; each is looked at alone
            return None

    def _still_waits(
        self,
        row: ScheduleTick,
        schedule: Schedule,
        state: ScheduleState | None,
        decisions: DecisionsOfMany,
    ) -> bool:
        """Whether a look that holds the rows would change nothing, as far as was read."""
        if state is None:
            return True
        one = Planned(row.tick, runs=True)
        if decide.without_user_code(schedule, state, one) is not None:
            return False
        verdict = decide.by_dependencies(self.book, schedule, one, decisions)
        return verdict is not None and verdict.decision in {None, TickDecision.WAITING}

    def _give_up(self, row: ScheduleTick, now: int) -> None:
        """Nobody waits for ever for a schedule that is gone; newer code may know it, though."""
        if row.decided_at < for_people(now - FORGOTTEN_AFTER):
            waits = ScheduleTick.objects.using(self.alias).filter(
                pk=row.pk, decision=TickDecision.WAITING
            )
            waits.update(
                decision=TickDecision.SKIPPED,
                reason="its schedule was removed or renamed while it waited",
                decided_at=for_people(now),
            )

    def _look_again(self, row: ScheduleTick, schedule: Schedule, now: int) -> list[ScheduleTick]:
        # The schedule first, as for a tick that is due: who decides whether jobs overlap
        # does so alone.
        state = locked(self.alias, ScheduleState).filter(key=row.key).first()
        if state is None:
            return []
        rows = locked(self.alias, ScheduleTick)
        held = rows.filter(pk=row.pk, decision=TickDecision.WAITING).first()
        if held is None:
            return []
        one = Planned(row.tick, runs=True)
        verdict = decide.without_user_code(schedule, state, one)
        verdict = verdict or decide.among_others(self.book, schedule, one, now)
        if verdict.decision in {None, TickDecision.WAITING}:
            return []
        held.decision, held.reason = str(verdict.decision), verdict.reason
        held.decided_at = for_people(now)
        held.save(using=self.alias)
        if verdict.has_a_job:
            self.recorder.give_job(schedule, held)
        return [held]


def _keys(names: Collection[str] | None) -> set[str] | None:
    return None if names is None else {schedule_key(name) for name in names}


# What a tick would do, and why not; nothing is written.


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
            held = [decide.without_user_code(schedule, state, one) for one in planned]
            ticks = list(zip(planned, held, strict=True))
            look = decide.Look(key, schedule, state, ticks, moves=True)
        if look is None or not look.ticks:
            return [_not_due(schedule, now)]
        said = decide.ask_when([schedule] if look.would_run else [])
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
        return decide.Verdict(TickDecision(found.decision), f"decided already{why}")


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
