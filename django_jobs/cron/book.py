"""The schedules in force, in order, and their rows in the store.

What every tick costs grows with the schedules that are due, not with those there are: the
rows are brought up to date only when the schedules change.

While a new version of the code is deployed, schedulers of both run at once and may read a
schedule differently. Its row belongs to who began it anew last; the other leaves it alone.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from django_jobs.backends.database.transactions import in_reading, in_transition
from django_jobs.clock import SECOND, from_datetime, to_datetime
from django_jobs.cron.occurrences import next_after
from django_jobs.cron.order import in_order
from django_jobs.cron.planning import beginning
from django_jobs.cron.registry import all_schedules
from django_jobs.models import ScheduleState, schedule_key
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable

    from django_jobs.cron.schedule import Schedule

ROWS_PER_STATEMENT = 500
FIRST_LOOK = 20
LOOK_AGAIN_AFTER = 450 * SECOND
"""A row that other code has at two such looks in a row is taken back: most deployments are
over by then, and the other one may be gone for good."""


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

    def refresh(self, now: int) -> None:
        """Ask for the schedules; give those that are new, or changed, their row."""
        found = all_schedules()
        if found != self._seen:
            self._take(found, now)
        elif self._writes and now >= self._look_again_at:
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
        changed = {name: getattr(row, name) for name in ("version", "decided_until", "next_due")}
        found = ScheduleState.objects.using(self.alias).filter(key=key, version=before)
        in_transition(self.alias, lambda _: found.update(**changed))


def _row(key: str, schedule: Schedule, now: int) -> ScheduleState:
    begins = beginning(schedule, now)
    return ScheduleState(
        key=key,
        name=schedule.name,
        version=version_of(schedule),
        decided_until=begins,
        next_due=due_after(schedule, begins),
    )


def _chunks(rows: list[ScheduleState]) -> Iterable[list[ScheduleState]]:
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]
