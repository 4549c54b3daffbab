"""The schedules in force, in order, and their rows in the store.

What every tick costs grows with the schedules that are due, not with those there are: the
rows are brought up to date only when the schedules change.

While a new version of the code is deployed, schedulers of both run at once and may read a
schedule differently. Its row belongs to who began it anew last; the other leaves it alone.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from django.db.models import Max

from django_jobs.backends.home import clock_of
from django_jobs.clock import SECOND, from_datetime, to_datetime
from django_jobs.cron.history import locked
from django_jobs.cron.occurrences import between, latest, next_after
from django_jobs.cron.options import Missed
from django_jobs.cron.registry import all_schedules, in_order
from django_jobs.db.clock import for_people
from django_jobs.db.transactions import in_reading, in_transition
from django_jobs.models import ScheduleState, ScheduleTick, TickDecision, schedule_key
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence
    from datetime import datetime

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.cron.schedule import Schedule


# Which ticks of a schedule are to run and which are past help. Pure: asks and changes nothing.


ON_TIME_SECONDS = 60
"""A tick that is looked at within it is on time: a system's crontab comes once a minute."""
MISSES_TOLD = 100
_FIELDS_WITH_SECONDS = 6


class Planned(NamedTuple):
    """One tick: whether it is to run, whether that makes up for a missed one, and why not."""

    tick: int
    runs: bool
    late: bool = False
    reason: str = ""


def beginning(schedule: Schedule, now: int) -> int:
    """Until when a schedule that is new at ``now`` counts as decided.

    The minute that has begun still counts, or the second where the expression has seconds.
    """
    whole = SECOND if len(schedule.expression.split()) == _FIELDS_WITH_SECONDS else 60 * SECOND
    return now - now % whole - 1


def plan(schedule: Schedule, after: int, now: int) -> list[Planned]:
    """The ticks after ``after`` and until ``now``, the oldest first, the missed ones judged.

    Of misses beyond ``MISSES_TOLD``, or beyond what is made up for, the oldest one listed
    stands for all before it.
    """
    made_up_for = schedule.missed_limit if schedule.missed is Missed.ALL else 0
    most = max(made_up_for, MISSES_TOLD) + 1
    # What is on time does not count among them: with seconds there may be many.
    last_missed = now - ON_TIME_SECONDS * SECOND - 1
    late = [from_datetime(one) for one in latest(schedule, *_utc(after, last_missed), most)]
    timely = [from_datetime(one) for one in between(schedule, *_utc(max(after, last_missed), now))]
    planned = _judged(schedule, late, now, superseded=bool(timely))
    if len(late) == most:
        told = "; it stands for all that were missed before it, too"
        planned[0] = planned[0]._replace(reason=planned[0].reason + told)
    return planned + [Planned(tick, runs=True) for tick in timely]


def _utc(after: int, until: int) -> tuple[datetime, datetime]:
    return to_datetime(after), to_datetime(until)


def _judged(schedule: Schedule, late: list[int], now: int, *, superseded: bool) -> list[Planned]:
    """What the schedule's policy says of ticks that nobody looked at in time."""
    if schedule.missed is Missed.ALL:
        chosen = set(late[-schedule.missed_limit :] if schedule.missed_limit else ())
        why = f"more than {schedule.missed_limit} were missed"
    elif schedule.missed is Missed.LATEST:
        chosen = set() if superseded else set(late[-1:])
        why = "a later one runs"
    else:
        chosen, why = set(), "no scheduler ran then"
    planned = []
    for tick in late:
        passed = (now - tick) / SECOND
        if tick not in chosen:
            planned.append(Planned(tick, runs=False, late=True, reason=f"missed: {why}"))
        elif schedule.deadline is not None and passed > schedule.deadline:
            told = f"missed: {passed:.0f} s late, its deadline is {schedule.deadline:g} s"
            planned.append(Planned(tick, runs=False, late=True, reason=told))
        else:
            planned.append(Planned(tick, runs=True, late=True))
    return planned


ROWS_PER_STATEMENT = 500
FIRST_LOOK = 20
LOOK_AGAIN_AFTER = 450 * SECOND
"""A row that other code has at two such looks in a row is taken back: most deployments are
over by then, and the other one may be gone for good."""
AHEAD = 300 * SECOND
"""What was decided by a clock that was no more than that ahead is waited for."""
BEGUN_ANEW_TOGETHER = 50


def version_of(schedule: Schedule) -> str:
    """A digest of what the moments of a schedule depend on."""
    told = (schedule.expression, schedule.timezone, schedule.daylight)
    return hashlib.sha256("\x00".join(told).encode()).hexdigest()


def due_after(schedule: Schedule, now: int) -> int | None:
    """The first tick after ``now``, in microseconds."""
    found = next_after(schedule, to_datetime(now))
    return None if found is None else from_datetime(found)


class Book:
    """What there is to run, by the digest of its name, those depended upon first."""

    def __init__(self, alias: str, *, writes: bool = True) -> None:
        self.alias = alias
        self._writes = writes
        self.schedules: dict[str, Schedule] = {}
        self.rank: dict[str, int] = {}
        self.versions: dict[str, str] = {}
        self._seen: list[Schedule] = []
        self._of_others: dict[str, str] = {}
        self._look_again_at = 0
        self._refreshed_at = 0

    def refresh(self, now: int) -> None:
        """Ask for the schedules; give those that are new, or changed, their row."""
        found = all_schedules()
        was_ahead = self._refreshed_at > now + AHEAD
        self._refreshed_at = now
        if found != self._seen:
            self._take(found, now)
        elif self._writes and (was_ahead or now >= self._look_again_at):
            self._take_back(now)

    def enter(self, now: int) -> None:
        """Give those their row that have none yet; what changed is for schedulers to tell."""
        found = {schedule_key(one.name): one for one in all_schedules()}
        self._add(found, self._known(), now)

    def due(self, now: int) -> list[str]:
        """The keys of the schedules that are due, in order."""
        rows = ScheduleState.objects.using(self.alias).filter(next_due__lte=now)
        found = in_reading(self.alias, lambda: list(rows.values_list("key", "version")))
        keys = [key for key, version in found if self.versions.get(key) == version]
        return sorted(keys, key=self.rank.__getitem__)

    def next_due(
        self, *, only: Collection[str] | None = None, without: Container[str] = ()
    ) -> int | None:
        """When the first of the schedules is due; of ``only`` these, and of none ``without``."""
        rows = ScheduleState.objects.using(self.alias).filter(next_due__isnull=False)
        if only is not None:
            rows = rows.filter(key__in=only)
        found = rows.order_by("next_due").values_list("key", "version", "next_due")
        # Rows of schedules that are gone, or that only newer code knows, are passed over.
        for page in (found[:FIRST_LOOK], found.iterator()):
            for key, version, due in page:
                if self.versions.get(key) == version and key not in without:
                    return due
        return None

    def by_name(self, name: str) -> Schedule | None:
        return self.schedules.get(schedule_key(name))

    def _take(self, found: list[Schedule], now: int) -> None:
        ordered = {schedule_key(one.name): one for one in in_order(found)}
        versions = {key: version_of(one) for key, one in ordered.items()}
        if self._writes:
            known = self._known()
            self._add(ordered, known, now)
            for key, version in versions.items():
                # Of those that did not change here, a row may be as newer code wants it.
                if self.versions.get(key) != version != known.get(key, version):
                    self._begin_anew(key, ordered[key], known[key], now)
        self.schedules, self.versions, self._seen = ordered, versions, found
        self.rank = {key: place for place, key in enumerate(ordered)}
        self._of_others, self._look_again_at = {}, now + LOOK_AGAIN_AFTER
        if self._writes:
            self._begin_anew_those_ahead(now)

    def _take_back(self, now: int) -> None:
        self._look_again_at = now + LOOK_AGAIN_AFTER
        before, self._of_others = self._of_others, {}
        for key, version in self._known().items():
            if self.versions.get(key, version) == version:
                continue
            schedule, what = self.schedules[key], "it is left to that"
            if before.get(key) == version:
                self._begin_anew(key, schedule, version, now)
                what = "it was so for long, and is taken back"
            else:
                self._of_others[key] = version
            events.emit(events.ScheduleOfOtherCode(schedule=schedule.name, what=what))
        self._begin_anew_those_ahead(now)

    def _begin_anew_those_ahead(self, now: int) -> None:
        """Undo what was called missed while the store's clock was ahead, and go on from now.

        Else a schedule would be silent until the clock is there again, and longer. All else
        that was decided stays: ticks that have a job have had it, and a clock that is behind for
        a moment looks the same from here as one that was ahead.
        """
        rows = ScheduleState.objects.using(self.alias).filter(decided_until__gt=now + AHEAD)
        found = in_reading(self.alias, lambda: list(rows.values_list("key", "version")))
        keys = [key for key, version in found if self.versions.get(key) == version]
        ahead: list[int] = []
        for start in range(0, len(keys), BEGUN_ANEW_TOGETHER):
            some = keys[start : start + BEGUN_ANEW_TOGETHER]
            ahead += in_transition(self.alias, partial(self._undo, some))
        if ahead:
            seconds = max(ahead) / SECOND
            events.emit(events.ClockWasAhead(schedules=len(ahead), seconds=seconds))

    def _undo(self, keys: Sequence[str], connection: BaseDatabaseWrapper) -> list[int]:
        """How far each of these was ahead; those that another scheduler holds are left to it."""
        now = clock_of(self.alias).read(connection)  # again: this process may have slept
        rows = locked(self.alias, ScheduleState)
        states = list(rows.filter(key__in=keys, decided_until__gt=now + AHEAD))
        ticks = ScheduleTick.objects.using(self.alias).filter(press=None)
        ticks = ticks.filter(key__in=[one.key for one in states])
        missed = ticks.filter(decision=TickDecision.MISSED)
        missed.filter(decided_at__gt=for_people(now + AHEAD)).delete()
        before = ticks.filter(tick__lte=now).order_by()
        last = dict(before.values("key").annotate(last=Max("tick")).values_list("key", "last"))
        ahead = []
        for state in states:
            schedule = self.schedules[state.key]
            ahead.append(state.decided_until - now)
            begins = beginning(schedule, now)
            # Its latest tick may be of other moments, by which it was due before it began anew.
            begun = min(state.begun, begins)
            state.decided_until = max(last.get(state.key, begins), begun)
            state.next_due = due_after(schedule, state.decided_until)
            state.save(using=self.alias, update_fields=["decided_until", "next_due"])
        return ahead

    def _known(self) -> dict[str, str]:
        """The rows there are, and of which version each is."""
        rows = ScheduleState.objects.using(self.alias).values_list("key", "version")
        return dict(in_reading(self.alias, lambda: list(rows)))

    def _add(self, ordered: dict[str, Schedule], known: Container[str], now: int) -> None:
        missing = [_row(key, one, now) for key, one in ordered.items() if key not in known]
        for chunk in _chunks(missing):
            in_transition(
                self.alias,
                lambda _, chunk=chunk: ScheduleState.objects.using(self.alias).bulk_create(  # type: ignore[misc] # an argument's default
                    chunk, ignore_conflicts=True
                ),
            )

    def _begin_anew(self, key: str, schedule: Schedule, before: str, now: int) -> None:
        """Its moments are others now: what was to come by the old ones is not missed."""
        row = _row(key, schedule, now)
        names = ("version", "begun", "decided_until", "next_due")
        changed = {name: getattr(row, name) for name in names}
        found = ScheduleState.objects.using(self.alias).filter(key=key, version=before)
        in_transition(self.alias, lambda _: found.update(**changed))


def _row(key: str, schedule: Schedule, now: int) -> ScheduleState:
    begins = beginning(schedule, now)
    return ScheduleState(
        key=key,
        name=schedule.name,
        version=version_of(schedule),
        begun=begins,
        decided_until=begins,
        next_due=due_after(schedule, begins),
    )


def _chunks(rows: list[ScheduleState]) -> Iterable[list[ScheduleState]]:
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]
