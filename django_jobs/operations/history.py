"""What workers did in the last hour and day, from the counts that they add up by the minute."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from django.db.models import F, Sum

from django_jobs.backends.database.minutes import MINUTE
from django_jobs.clock import SECOND, to_datetime
from django_jobs.db.home import moments
from django_jobs.models import QueueMinute

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


@dataclass(slots=True)
class Counts:
    """How many runs ended how: well, badly with a retry to come, or with a dead letter."""

    succeeded: int = 0
    retried: int = 0
    dead: int = 0

    @property
    def total(self) -> int:
        return self.succeeded + self.retried + self.dead

    def add(self, other: Counts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Counts in slots of equal length; the last one is under way. ``begins`` is the first's."""

    begins: datetime
    slot_minutes: int
    slots: Sequence[Counts]

    @property
    def total(self) -> Counts:
        total = Counts()
        for slot in self.slots:
            total.add(slot)
        return total

    def by(self, count: int) -> Series:
        """The same in fewer slots, of ``count`` each."""
        grouped = []
        for first in range(0, len(self.slots), count):
            group = Counts()
            for slot in self.slots[first : first + count]:
                group.add(slot)
            grouped.append(group)
        return Series(
            begins=self.begins, slot_minutes=self.slot_minutes * count, slots=tuple(grouped)
        )


def series(slots: int, slot_minutes: int, at: Mapping[str, int] | None = None) -> Series:
    """All queues together. ``at``: the moments of the databases, where they are known."""
    counts = [Counts() for _ in range(slots)]
    begins = 0
    for alias, moment in (at or moments()).items():
        now = moment // MINUTE
        first = now - now % slot_minutes - (slots - 1) * slot_minutes
        begins = begins or first
        rows = QueueMinute.objects.using(alias).filter(minute__gte=first, minute__lte=now)
        rows = rows.annotate(slot=(F("minute") - first) - (F("minute") - first) % slot_minutes)
        for slot, *told in rows.values_list("slot").annotate(
            Sum("succeeded"), Sum("retried"), Sum("dead")
        ):
            counts[int(slot) // slot_minutes].add(Counts(*map(int, told)))
    return Series(
        begins=to_datetime(begins * 60 * SECOND), slot_minutes=slot_minutes, slots=tuple(counts)
    )


def by_queue(minutes: int, at: Mapping[str, int] | None = None) -> dict[tuple[str, str], Counts]:
    """The last minutes of each queue, by backend and name."""
    found: dict[tuple[str, str], Counts] = {}
    for alias, moment in (at or moments()).items():
        first = moment // MINUTE - minutes
        rows = QueueMinute.objects.using(alias).filter(minute__gt=first).order_by()
        for backend, queue, *told in rows.values_list("backend", "queue").annotate(
            Sum("succeeded"), Sum("retried"), Sum("dead")
        ):
            found[backend, queue] = Counts(*map(int, told))
    return found
