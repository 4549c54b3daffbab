"""Parse cron expressions, and find when they are due by a clock that is never changed.

croniter parses an expression after anything that it would misread has been rewritten or refused.
The search is ours, as croniter's own does not join dates with ``#``, ``L5`` and ``W``. Everything
here is wall time, in seconds since 1970 by the clock on the wall; ``occurrences`` applies the
time zone.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, replace
from datetime import MAXYEAR, date
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from croniter import croniter

from django_jobs.exceptions import InvalidSchedule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


ALL_MONTHS = frozenset(range(1, 13))
ALL_DATES = frozenset(range(1, 32))
ALL_WEEKDAYS = frozenset(range(7))
LAST = "l"

_SATURDAY, _SUNDAY = 5, 6  # as the calendar counts, from Monday
_LONGEST_WAIT = 50  # years: 29 February on a certain weekday comes within forty


@dataclass(frozen=True, slots=True)
class Days:
    """Which days of which months. Neither a date nor a weekday means every day.

    With both, either will do: the days of a month are the union of the two. Weekdays are numbers,
    0 being Sunday.
    """

    months: frozenset[int] = ALL_MONTHS
    dates: frozenset[int] = frozenset()
    on_last: bool = False
    nearest: frozenset[int] = frozenset()
    """Dates that stand for the nearest day from Monday to Friday within the same month."""
    weekdays: frozenset[int] = frozenset()
    nth: frozenset[tuple[int, int | str]] = frozenset()
    """Weekdays with their number within the month, or LAST."""

    @property
    def by_date(self) -> bool:
        """Whether any day is selected by its date."""
        return bool(self.dates or self.on_last or self.nearest)

    @property
    def by_weekday(self) -> bool:
        """Whether any day is selected by its weekday."""
        return bool(self.weekdays or self.nth)

    @property
    def every(self) -> bool:
        """Whether no day of these months is left out."""
        either = self.by_date or self.by_weekday
        return not either or self.dates == ALL_DATES or self.weekdays == ALL_WEEKDAYS

    def first_from(self, day: date) -> date | None:
        """The first day that fits, from ``day`` on; None if none does for fifty years."""
        for offset in range(12 * _LONGEST_WAIT + 12):
            year, month = divmod(day.year * 12 + day.month - 1 + offset, 12)
            if year > MAXYEAR:
                return None
            since = 1 if offset else day.day
            days = self.of_month(year, month + 1)
            first = min((number for number in days if number >= since), default=None)
            if first is not None:
                return date(year, month + 1, first)
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
            dates = range(_first(weekday, first), length + 1, 7)
            if which == LAST:
                yield dates[-1]
            elif int(which) <= len(dates):
                yield dates[int(which) - 1]


def _first(weekday: int, first: int) -> int:
    """The date of the first such weekday in a month whose 1st is weekday ``first`` from Monday."""
    return (weekday - 1 - first) % 7 + 1


def _nearest(day: int, first: int, length: int) -> int:
    """Friday for a Saturday and Monday for a Sunday, but never in another month."""
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


# Fields are counted from 0, the minute.

DAY, MONTH, WEEKDAY = 2, 3, 4

_LOWEST = (0, 0, 1, 1, 0, 0)
_SIZES = (60, 24, 31, 12, 7, 60)
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_NAMES = {
    DAY: {"l": 31},
    MONTH: {name: number for number, name in enumerate(_MONTHS, 1)},
    WEEKDAY: {name: number for number, name in enumerate(_DAYS)},
}
_SUNDAY_AGAIN = 7
_LATEST_HASHED = 28  # every month has it, so no name makes a schedule skip months

_RANGE = re.compile(r"([^-/#]+)-([^-/#]+?)(?:/(\d+))?(?:#\d+)?", re.ASCII)
_HASH = re.compile(r"h(?:\((\d+)-(\d+)\))?(?:/(\d+))?", re.ASCII)
_NTH = re.compile(r".+#.*|l\d+", re.ASCII)
_NAMED = f"(?:{'|'.join(_DAYS)})"

# Syntax of other crons: the fields it is refused in, its pattern, and what to write instead.
_UNSUPPORTED = (
    ({DAY}, r"l-\d+", "write 'L' for the last day, or a day such as '25'"),
    ({DAY}, r"lw|wl", "write 'L' for the last day, or a weekday such as '28W'"),
    ({WEEKDAY}, rf"l|\dl|l-?{_NAMED}|{_NAMED}l|\w+#l", "write 'L5' for the last Friday"),
    ({0, 1, MONTH, 5}, r"\?", "write '*'"),
)
# Items that must stand alone in their field.
_ALONE = (({0, 1, DAY, MONTH, WEEKDAY, 5}, _HASH.pattern), ({DAY}, r"\d+w|w\d+"))


def rewritten(text: str, fields: Sequence[str]) -> str:
    """The fields rewritten for croniter; raises InvalidSchedule quoting ``text``.

    Anything that croniter would misread is spelled out, and anything ambiguous is refused with what
    to write instead. Fields are lower case.
    """
    if text.startswith("@"):
        return text
    return " ".join(_field(text, place, field) for place, field in enumerate(fields))


def _field(text: str, place: int, field: str) -> str:
    items = field.split(",")
    _refuse_unsupported(text, place, items)
    if place == DAY and (match := _HASH.fullmatch(field)):
        return _hashed_day(text, field, match)
    return ",".join(_item(text, place, item) for item in items)


def _refuse_unsupported(text: str, place: int, items: list[str]) -> None:
    for item in items:
        for places, pattern, instead in _UNSUPPORTED:
            if place in places and re.fullmatch(pattern, item, re.ASCII):
                raise InvalidSchedule(f"{text!r} has {item!r}, which is not supported; {instead}")
        for places, pattern in _ALONE:
            if place in places and len(items) > 1 and re.fullmatch(pattern, item, re.ASCII):
                raise InvalidSchedule(
                    f"{text!r} has {item!r} in a list, and it stands alone in its field; write a "
                    "schedule for each"
                )
    # Beside a numbered weekday croniter drops the same plain one, or all plain ones.
    if place == WEEKDAY and len({bool(_NTH.fullmatch(item)) for item in items}) > 1:
        raise InvalidSchedule(
            f"{text!r} mixes days of every week with those of certain weeks such as 'fri#2' or "
            "'L5'; write a schedule for each"
        )


def _hashed_day(text: str, field: str, match: re.Match[str]) -> str:
    """A hashed day of the month, limited to days that every month has."""
    first, last = int(match[1] or 1), int(match[2] or _LATEST_HASHED)
    if first >= _LATEST_HASHED and last > first:
        raise InvalidSchedule(
            f"{text!r} has {field!r}, and 'H' stands for a day that every month has, 1 to "
            f"{_LATEST_HASHED}; write 'H', or the day itself"
        )
    if last <= _SIZES[DAY]:  # croniter refuses greater ones
        last = min(last, _LATEST_HASHED)
    return f"h({first}-{last})" + (f"/{match[3]}" if match[3] else "")


def _item(text: str, place: int, item: str) -> str:
    if place == WEEKDAY and re.fullmatch(r"0*7/0*[1-9]\d*", item, re.ASCII):
        return str(_SUNDAY_AGAIN)  # no day follows it; croniter would start again from Sunday
    if (match := _RANGE.fullmatch(item)) is None:
        return item
    first, last = (_number(place, match[bound]) for bound in (1, 2))
    if first is None or last is None:
        return item  # croniter refuses it
    if first == last or (place == WEEKDAY and (first, last) == (_SUNDAY_AGAIN, 0)):
        raise InvalidSchedule(
            f"{text!r} has the range {item!r} from a value to itself; write {match[1]!r} "
            "for that value alone, or '*' for all"
        )
    if first < last or not int(match[3] or 0):
        return item
    # croniter miscounts steps that wrap around the end.
    lowest, size = _LOWEST[place], _SIZES[place]
    around = range(first, last + size + 1, int(match[3]))
    return ",".join(str((value - lowest) % size + lowest) for value in around)


def _number(place: int, written: str) -> int | None:
    """The number that a bound stands for; None if the field has no such value."""
    digits = written.isascii() and written.isdecimal()
    number = int(written) if digits else _NAMES.get(place, {}).get(written)
    highest = _SUNDAY_AGAIN if place == WEEKDAY else _LOWEST[place] + _SIZES[place] - 1
    return number if number is not None and _LOWEST[place] <= number <= highest else None


def hashed_months(field: str) -> Iterator[frozenset[int]]:
    """Every set of months that a month field with an ``H`` may stand for."""
    if (match := _HASH.fullmatch(field)) is None:
        return
    first, last, step = int(match[1] or 1), int(match[2] or 12), int(match[3] or 0)
    for month in range(first, min(first + step - 1, last) + 1 if step else last + 1):
        yield frozenset(range(month, last + 1, step) if step else {month})


# The whole expression.


FIELDS = ("minute", "hour", "day of the month", "month", "day of the week", "second")
SECONDS_AT = 5
LONGEST = 255

_TIMES = (0, 1, SECONDS_AT)  # the fields that say when within a day
_MAXIMA = ("59", "23", "31", "12|dec", "6|sat|7", "59")
_HASHED = re.compile(r"(?:^|[\s,])h(?:$|[\s,(/])", re.IGNORECASE)
_RANDOM = re.compile(r"(?:^|[\s,])r(?:$|[\s,(/])", re.IGNORECASE)
_DAY_SECONDS = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_SOME_DAY = date(2024, 1, 1)
_Expanded = tuple[list[int | str], ...]


class Times(NamedTuple):
    """The times of a day: each of these hours with each of these minutes and seconds."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    def first_from(self, second: int) -> int | None:
        """The first time that fits from ``second`` on, in seconds of the day."""
        for hour in self.hours:
            if hour * 3600 + 3599 < second:
                continue
            for minute in self.minutes:
                start = hour * 3600 + minute * 60
                if start + self.seconds[-1] >= second:
                    return start + next(
                        offset for offset in self.seconds if start + offset >= second
                    )
        return None


@dataclass(frozen=True, slots=True)
class Expression:
    """A valid expression. ``texts`` are its fields as written, with nicknames resolved."""

    text: str
    texts: tuple[str, ...]
    expanded: _Expanded
    """The values of each field, in the order of FIELDS; ``["*"]`` means all of them."""
    times: Times
    days: Days

    @property
    def paced(self) -> bool:
        """Whether it means an interval rather than times of the day."""
        return any(
            "*" in text or "/" in text or values == ["*"]
            for place, (text, values) in enumerate(zip(self.texts, self.expanded, strict=True))
            if place in _TIMES
        )

    def next_wall(self, wall: int) -> int | None:
        """The first second after ``wall`` that fits; None if none does for fifty years."""
        number, second = divmod(wall + 1, _DAY_SECONDS)
        today = date.fromordinal(_EPOCH + number)
        day = self.days.first_from(today)
        if day == today:
            if (time := self.times.first_from(second)) is not None:
                return number * _DAY_SECONDS + time
            day = self.days.first_from(date.fromordinal(_EPOCH + number + 1))
        time = self.times.first_from(0)
        if day is None or time is None:
            return None
        return (day.toordinal() - _EPOCH) * _DAY_SECONDS + time


def parsed(text: object, hash_id: str = "") -> Expression:
    """Read an expression; raises InvalidSchedule quoting it.

    ``hash_id`` determines what ``H`` in it stands for.
    """
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST:
        raise InvalidSchedule(f"{text!r} is no cron expression; give a text such as '0 2 * * *'")
    # With a hash id, croniter would hash a nickname such as @daily as well.
    return _parsed(text, hash_id if _HASHED.search(text) else None)


@lru_cache(maxsize=16384)
def _parsed(text: str, hash_id: str | None) -> Expression:
    if _RANDOM.search(text):
        raise InvalidSchedule(
            f"{text!r} has an 'R', which every scheduler would read differently; write 'H' for "
            "a time that depends on the schedule's name"
        )
    count = len(text.split())
    if not text.startswith("@") and count not in {len(FIELDS) - 1, len(FIELDS)}:
        raise InvalidSchedule(
            f"{text!r} has {count} field{'s' * (count != 1)}; "
            "give five, or six with the seconds last"
        )
    fields = re.findall(r"\S+", text.lower(), re.ASCII)  # croniter splits only at ASCII spaces
    readable = rewritten(text, fields)
    try:
        reader = croniter(readable, 0.0, hash_id=hash_id)
    except (ValueError, OverflowError) as error:  # CroniterError is a ValueError
        raise InvalidSchedule(f"{text!r} is no cron expression: {error}") from None
    texts = tuple(reader.expressions) if text.startswith("@") else tuple(fields)
    expanded: _Expanded = tuple(["*"] if "*" in values else values for values in reader.expanded)
    times = Times(_numbers(expanded, 1, 24), _numbers(expanded, 0, 60), _seconds(expanded))
    expression = Expression(text, texts, expanded, times, _days(reader, texts))
    _refuse_what_never_comes(expression)
    return expression


def _numbers(expanded: _Expanded, place: int, size: int) -> tuple[int, ...]:
    if expanded[place] == ["*"]:
        return tuple(range(size))
    return tuple(sorted(value for value in expanded[place] if isinstance(value, int)))


def _seconds(expanded: _Expanded) -> tuple[int, ...]:
    return _numbers(expanded, SECONDS_AT, 60) if len(expanded) > SECONDS_AT else (0,)


def _days(reader: Any, texts: tuple[str, ...]) -> Days:  # croniter ships no types
    """The days of an expression. An open field selects none; ``*/2`` and ``1-31`` select days."""
    months, dates, weekdays = (reader.expanded[place] for place in (MONTH, DAY, WEEKDAY))
    days = Days(months=ALL_MONTHS if "*" in months else frozenset(months))
    if not _is_open(texts[DAY]):
        nearest = frozenset(reader.nearest_weekday)
        numbers = range(1, 32) if "*" in dates else (number for number in dates if number != "l")
        days = replace(
            days, dates=frozenset(numbers) - nearest, on_last="l" in dates, nearest=nearest
        )
    if not _is_open(texts[WEEKDAY]):
        nth = frozenset(
            (day, which) for day, some in reader.nth_weekday_of_month.items() for which in some
        )
        plain = range(7) if "*" in weekdays else () if nth else weekdays
        days = replace(days, weekdays=frozenset(plain), nth=nth)
    return days


def _is_open(field: str) -> bool:
    return not {"*", "?"}.isdisjoint(field.split(","))


def _refuse_what_never_comes(expression: Expression) -> None:
    # For all names, so that renaming a schedule cannot make its expression wrong.
    for months in hashed_months(expression.texts[MONTH]):
        if replace(expression.days, months=months).first_from(_SOME_DAY) is None:
            raise InvalidSchedule(
                f"{expression.text!r} never comes under some names, as 'H' may stand for a month "
                "without such a day; write the months, or 'L' for the last day"
            )
    if expression.days.first_from(_SOME_DAY) is None:
        raise InvalidSchedule(f"{expression.text!r} never comes: no year has such a day")


def changed_meaning(text: str) -> str | None:
    """How the meaning of an expression differs from that under croniter 6, or None.

    Since croniter 7 a step that starts at the greatest value of a field means that value alone;
    before, it meant the whole field.
    """
    for place, written in enumerate(text.lower().split()[: len(_MAXIMA)]):
        for item in written.split(","):
            if re.fullmatch(rf"(?:{_MAXIMA[place]})/\d+", item):
                return (
                    f"{item!r} in the field of the {FIELDS[place]} is {item.split('/')[0]!r} alone"
                )
    return None
