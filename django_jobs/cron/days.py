"""On which days a cron expression runs: those by their date, and those by their weekday.

Where both are said either will do, so the days of a month are the union of the two. Weekdays are
numbers, 0 being Sunday.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import MAXYEAR, date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ALL_MONTHS = frozenset(range(1, 13))
ALL_DATES = frozenset(range(1, 32))
ALL_WEEKDAYS = frozenset(range(7))
LAST = "l"

_SATURDAY, _SUNDAY = 5, 6  # as the calendar counts, from Monday
_LONGEST_WAIT = 50  # years: 29 February of a certain weekday comes after forty at the latest


@dataclass(frozen=True, slots=True)
class Days:
    """Which days of which months. Neither a date nor a weekday means every day."""

    months: frozenset[int] = ALL_MONTHS
    dates: frozenset[int] = frozenset()
    on_last: bool = False
    nearest: frozenset[int] = frozenset()
    """Dates for which the nearest of Monday to Friday within the same month stands in."""
    weekdays: frozenset[int] = frozenset()
    nth: frozenset[tuple[int, int | str]] = frozenset()
    """Weekdays with their number within the month, or LAST."""

    @property
    def by_date(self) -> bool:
        """Whether any day is said by its date."""
        return bool(self.dates or self.on_last or self.nearest)

    @property
    def by_weekday(self) -> bool:
        """Whether any day is said by its weekday."""
        return bool(self.weekdays or self.nth)

    @property
    def every(self) -> bool:
        """Whether no day of these months is left out."""
        either = self.by_date or self.by_weekday
        return not either or self.dates == ALL_DATES or self.weekdays == ALL_WEEKDAYS

    def first_from(self, day: date) -> date | None:
        """The first day that fits, ``day`` or a later one; None if none does for fifty years."""
        for number in range(12 * _LONGEST_WAIT + 12):
            year, month = divmod(day.year * 12 + day.month - 1 + number, 12)
            if year > MAXYEAR:
                return None
            since = 1 if number else day.day
            found = min((n for n in self.of_month(year, month + 1) if n >= since), default=None)
            if found is not None:
                return date(year, month + 1, found)
        return None

    def of_month(self, year: int, month: int) -> Collection[int]:
        """The days of one month, in no order."""
        if month not in self.months:
            return ()
        first, length = calendar.monthrange(year, month)
        if self.every:
            return range(1, length + 1)
        return {*self._by_date(first, length), *self._by_weekday(first, length)}

    def _by_date(self, first: int, length: int) -> Iterator[int]:
        yield from (day for day in self.dates if day <= length)
        if self.on_last:
            yield length
        for day in self.nearest:
            if day <= length:
                yield _nearest(day, first, length)

    def _by_weekday(self, first: int, length: int) -> Iterator[int]:
        for weekday in self.weekdays:
            yield from range(_first(weekday, first), length + 1, 7)
        for weekday, which in self.nth:
            found = range(_first(weekday, first), length + 1, 7)
            if which == LAST:
                yield found[-1]
            elif int(which) <= len(found):
                yield found[int(which) - 1]


def _first(weekday: int, first: int) -> int:
    """The date of the first such day of a month whose 1st is the ``first`` from Monday."""
    return (weekday - 1 - first) % 7 + 1


def _nearest(day: int, first: int, length: int) -> int:
    """Saturday gives way to Friday and Sunday to Monday, but never to another month."""
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day
