"""Compute the moments at which a schedule is due. Every datetime here is aware and in UTC.

On days on which the clocks change, times of the day and intervals are read differently: see
``Daylight``. Everything is computed in whole seconds.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from django_jobs.cron.expression import parsed
from django_jobs.cron.options import Daylight
from django_jobs.cron.zones import last_transition, next_transition, offset, zone_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from django_jobs.cron.expression import Expression
    from django_jobs.cron.schedule import Schedule

_LONGEST_GAP = 2 * 86_400


def next_after(schedule: Schedule, instant: datetime) -> datetime | None:
    """The first moment after ``instant`` at which the schedule is due; None if there is none.

    Uses only the name, expression, timezone and daylight of the schedule; gates do not matter.
    Raises InvalidSchedule for a wrong expression or zone.
    """
    moment = _FieldReading.of(schedule).next(_whole(instant))
    return None if moment is None else datetime.fromtimestamp(moment, UTC)


def between(
    schedule: Schedule, after: datetime, until: datetime, limit: int | None = None
) -> list[datetime]:
    """The moments after ``after`` and not after ``until``, the first ``limit`` of them."""
    moments = _FieldReading.of(schedule).between(_whole(after), _whole(until), limit)
    return [datetime.fromtimestamp(moment, UTC) for moment in moments]


def latest(schedule: Schedule, after: datetime, until: datetime, limit: int = 1) -> list[datetime]:
    """As ``between``, but the last ``limit`` of them; again the earliest first.

    Costs about as much as ``limit`` calls of ``next_after``, however long the time between.
    """
    reading, start, end = _FieldReading.of(schedule), _whole(after), _whole(until)
    span = 60 * limit
    while True:
        moments = reading.between(max(start, end - span), end, None)
        if len(moments) >= limit or end - span <= start:
            return [datetime.fromtimestamp(moment, UTC) for moment in moments[-limit:]]
        span *= 4


def _whole(instant: datetime) -> int:
    # Due moments are whole seconds, so one is after an instant if it is after its second.
    return math.floor(instant.timestamp())


class _FieldReading(NamedTuple):
    """An expression read by the clocks of a time zone."""

    expression: Expression
    zone: ZoneInfo
    paced: bool

    @classmethod
    def of(cls, schedule: Schedule) -> _FieldReading:
        expression = parsed(schedule.expression, schedule.name)
        paced = schedule.daylight == Daylight.INTERVAL or (
            schedule.daylight == Daylight.AUTO and expression.paced
        )
        return cls(expression, zone_of(schedule.timezone), paced)

    def next(self, moment: int) -> int | None:
        return self._next_paced(moment) if self.paced else self._next_fixed(moment)

    def between(self, after: int, until: int, limit: int | None) -> list[int]:
        moments: list[int] = []
        moment = self.next(after)
        while moment is not None and moment <= until and (limit is None or len(moments) < limit):
            moments.append(moment)
            moment = self.next(moment)
        return moments

    def _next_paced(self, moment: int) -> int | None:
        """Search each stretch between two changes of the clocks, in which the offset is fixed."""
        ahead = offset(self.zone, moment)
        wall = moment + ahead
        while (due := self.expression.next_wall(wall)) is not None:
            change = next_transition(self.zone, moment, due - ahead)
            if change is None:
                return due - ahead
            moment, ahead = change.moment, change.after
            wall = moment + ahead - 1  # the moment of the change may be due itself
        return None

    def _next_fixed(self, moment: int) -> int | None:
        """Each wall time counts at one moment only, and moments rise with wall times."""
        wall = moment + offset(self.zone, moment)
        change = last_transition(self.zone, moment)
        if change is not None:
            # After the clock was put back, it shows times a second time: skip these.
            wall = max(wall, change.moment + change.before - 1)
        due = self.expression.next_wall(wall)
        return None if due is None else self._moment_of(due)

    def _moment_of(self, wall: int) -> int:
        """The first moment at which the clock shows ``wall``, or jumps over it."""
        # Any change that matters lies between the moments by the greatest and the smallest offset.
        ahead = offset(self.zone, wall - _LONGEST_GAP)
        moment = wall - _LONGEST_GAP
        while (change := next_transition(self.zone, moment, wall + _LONGEST_GAP)) is not None:
            if wall - ahead < change.moment:
                break
            if wall - change.after < change.moment:
                return change.moment
            moment, ahead = change.moment, change.after
        return wall - ahead
