"""The schedules in force, in order, and their rows in the store.

The cost of a tick grows with the number of due schedules, not of all schedules: rows are
updated only when the schedules change.

While a new version of the code is deployed, schedulers of both versions run at once and may read
a schedule differently. Its row belongs to the one that restarted it last; the other leaves it
alone.
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


# Planning: which ticks of a schedule run, and which were missed. Pure functions.


ON_TIME_SECONDS = 60
"""A tick decided within this time is on time: a system's crontab ticks once a minute."""
MISSES_LISTED = 100
_FIELDS_WITH_SECONDS = 6


class Planned(NamedTuple):
    """One tick: whether it runs, whether it is late, and why it does not run."""

    tick: int
    runs: bool
    late: bool = False
    reason: str = ""


def beginning(schedule: Schedule, now: int) -> int:
    """The moment up to which a schedule that is new at ``now`` counts as decided.

    The current minute is still to be decided, or the second if the expression has seconds.
    """
    whole = SECOND if len(schedule.expression.split()) == _FIELDS_WITH_SECONDS else 60 * SECOND
    return now - now % whole - 1


def plan(schedule: Schedule, after: int, now: int) -> list[Planned]:
    """The ticks after ``after`` until ``now``, the oldest first, with the missed ones judged.

    If more were missed than ``MISSES_LISTED``, or than are made up for, the oldest one listed
    stands for all before it.
    """
    made_up_for = schedule.missed_limit if schedule.missed is Missed.ALL else 0
    most = max(made_up_for, MISSES_LISTED) + 1
    # Ticks on time are not limited: with seconds there may be many.
    last_missed = now - ON_TIME_SECONDS * SECOND - 1
    late = list(map(from_datetime, latest(schedule, *_utc(after, last_missed), most)))
    timely = list(map(from_datetime, between(schedule, *_utc(max(after, last_missed), now))))
    planned = _judged(schedule, late, now, superseded=bool(timely))
    if len(late) == most:
        why = "; it stands for all that were missed before it, too"
        planned[0] = planned[0]._replace(reason=planned[0].reason + why)
    return planned + [Planned(tick, runs=True) for tick in timely]


def _utc(after: int, until: int) -> tuple[datetime, datetime]:
    return to_datetime(after), to_datetime(until)


def _judged(schedule: Schedule, late: list[int], now: int, *, superseded: bool) -> list[Planned]:
    """Apply the schedule's policy to ticks that no scheduler decided in time."""
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
            reason = f"missed: {passed:.0f} s late, its deadline is {schedule.deadline:g} s"
            planned.append(Planned(tick, runs=False, late=True, reason=reason))
        else:
            planned.append(Planned(tick, runs=True, late=True))
    return planned


# The schedules and their rows.


ROWS_PER_STATEMENT = 500
FIRST_LOOK = 20
LOOK_AGAIN_AFTER = 450 * SECOND
"""A row that belongs to other code at two such checks in a row is taken back: most deployments
are over by then, and the other code may be gone for good."""
AHEAD = 300 * SECOND
"""If a clock was ahead by no more than this, wait until it is that time."""
RESTARTED_TOGETHER = 50


def version_of(schedule: Schedule) -> str:
    """A digest of everything that determines the moments of a schedule."""
    fields = (schedule.expression, schedule.timezone, schedule.daylight)
    return hashlib.sha256("\x00".join(fields).encode()).hexdigest()


def due_after(schedule: Schedule, now: int) -> int | None:
    """The first tick after ``now``, in microseconds."""
    moment = next_after(schedule, to_datetime(now))
    return None if moment is None else from_datetime(moment)


class Book:
    """The schedules by the digests of their names, each behind those it depends on."""

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
        """Read the schedules; write the rows of those that are new or have changed."""
        schedules = all_schedules()
        was_ahead = self._refreshed_at > now + AHEAD
        self._refreshed_at = now
        if schedules != self._seen:
            self._take(schedules, now)
        elif self._writes and (was_ahead or now >= self._look_again_at):
            self._take_back(now)

    def enter(self, now: int) -> None:
        """Create missing rows. Changed schedules are left to schedulers."""
        schedules = {schedule_key(schedule.name): schedule for schedule in all_schedules()}
        self._add(schedules, self._stored_versions(), now)

    def due(self, now: int) -> list[str]:
        """The keys of the schedules that are due, in order."""
        rows = ScheduleState.objects.using(self.alias).filter(next_due__lte=now)
        entries = in_reading(self.alias, lambda: list(rows.values_list("key", "version")))
        keys = [key for key, version in entries if self.versions.get(key) == version]
        return sorted(keys, key=self.rank.__getitem__)

    def next_due(
        self, *, only: Collection[str] | None = None, without: Container[str] = ()
    ) -> int | None:
        """When the next schedule is due, among ``only`` these keys and ``without`` those."""
        rows = ScheduleState.objects.using(self.alias).filter(next_due__isnull=False)
        if only is not None:
            rows = rows.filter(key__in=only)
        entries = rows.order_by("next_due").values_list("key", "version", "next_due")
        # Skip rows of schedules that were removed, or that only newer code knows.
        for page in (entries[:FIRST_LOOK], entries.iterator()):
            for key, version, due in page:
                if self.versions.get(key) == version and key not in without:
                    return due
        return None

    def by_name(self, name: str) -> Schedule | None:
        return self.schedules.get(schedule_key(name))

    def _take(self, schedules: list[Schedule], now: int) -> None:
        ordered = {schedule_key(schedule.name): schedule for schedule in in_order(schedules)}
        versions = {key: version_of(schedule) for key, schedule in ordered.items()}
        if self._writes:
            stored = self._stored_versions()
            self._add(ordered, stored, now)
            for key, version in versions.items():
                # If it has not changed here, its row may belong to newer code.
                if self.versions.get(key) != version != stored.get(key, version):
                    self._restart(key, ordered[key], stored[key], now)
        self.schedules, self.versions, self._seen = ordered, versions, schedules
        self.rank = {key: place for place, key in enumerate(ordered)}
        self._of_others, self._look_again_at = {}, now + LOOK_AGAIN_AFTER
        if self._writes:
            self._restart_ahead(now)

    def _take_back(self, now: int) -> None:
        self._look_again_at = now + LOOK_AGAIN_AFTER
        before, self._of_others = self._of_others, {}
        for key, version in self._stored_versions().items():
            if self.versions.get(key, version) == version:
                continue
            schedule, what = self.schedules[key], "it is left to that"
            if before.get(key) == version:
                self._restart(key, schedule, version, now)
                what = "it was so for long, and is taken back"
            else:
                self._of_others[key] = version
            events.emit(events.ScheduleOfOtherCode(schedule=schedule.name, what=what))
        self._restart_ahead(now)

    def _restart_ahead(self, now: int) -> None:
        """Undo misses that were recorded while the store's clock was ahead, and go on from now.

        Else a schedule would be silent until that time comes, and longer. All other decisions
        stay: jobs that were enqueued remain so, and a clock that is behind for a moment looks
        the same from here as one that was ahead.
        """
        rows = ScheduleState.objects.using(self.alias).filter(decided_until__gt=now + AHEAD)
        entries = in_reading(self.alias, lambda: list(rows.values_list("key", "version")))
        keys = [key for key, version in entries if self.versions.get(key) == version]
        ahead: list[int] = []
        for start in range(0, len(keys), RESTARTED_TOGETHER):
            some = keys[start : start + RESTARTED_TOGETHER]
            ahead += in_transition(self.alias, partial(self._undo, some))
        if ahead:
            seconds = max(ahead) / SECOND
            events.emit(events.ClockWasAhead(schedules=len(ahead), seconds=seconds))

    def _undo(self, keys: Sequence[str], connection: BaseDatabaseWrapper) -> list[int]:
        """Restart these, except those locked by another scheduler; how far each was ahead."""
        now = clock_of(self.alias).read(connection)  # again: this process may have slept
        rows = locked(self.alias, ScheduleState)
        states = list(rows.filter(key__in=keys, decided_until__gt=now + AHEAD))
        ticks = ScheduleTick.objects.using(self.alias).filter(press=None)
        ticks = ticks.filter(key__in=[row.key for row in states])
        missed = ticks.filter(decision=TickDecision.MISSED)
        missed.filter(decided_at__gt=for_people(now + AHEAD)).delete()
        before = ticks.filter(tick__lte=now).order_by()
        last = dict(before.values("key").annotate(last=Max("tick")).values_list("key", "last"))
        ahead = []
        for state in states:
            schedule = self.schedules[state.key]
            ahead.append(state.decided_until - now)
            begins = beginning(schedule, now)
            # Its latest tick may be one of the old moments, from before it was restarted.
            begun = min(state.begun, begins)
            state.decided_until = max(last.get(state.key, begins), begun)
            state.next_due = due_after(schedule, state.decided_until)
            state.save(using=self.alias, update_fields=["decided_until", "next_due"])
        return ahead

    def _stored_versions(self) -> dict[str, str]:
        """The versions of all rows, by key."""
        rows = ScheduleState.objects.using(self.alias).values_list("key", "version")
        return dict(in_reading(self.alias, lambda: list(rows)))

    def _add(self, ordered: dict[str, Schedule], stored: Container[str], now: int) -> None:
        missing = [
            _row(key, schedule, now) for key, schedule in ordered.items() if key not in stored
        ]
        for chunk in _chunks(missing):
            in_transition(
                self.alias,
                lambda _, chunk=chunk: ScheduleState.objects.using(self.alias).bulk_create(  # type: ignore[misc] # an argument's default
                    chunk, ignore_conflicts=True
                ),
            )

    def _restart(self, key: str, schedule: Schedule, before: str, now: int) -> None:
        """Restart a schedule whose moments have changed: ticks of the old ones are not missed."""
        row = _row(key, schedule, now)
        names = ("version", "begun", "decided_until", "next_due")
        changed = {name: getattr(row, name) for name in names}
        stored = ScheduleState.objects.using(self.alias).filter(key=key, version=before)
        in_transition(self.alias, lambda _: stored.update(**changed))


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
