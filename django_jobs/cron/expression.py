"""A cron expression by itself: when it is due by a clock that nobody ever changes.

croniter parses it, after what it would misread has been written out or refused; the search is
ours, as its own does not know "either will do" for ``#``, ``L5`` and ``W``. All of it is wall
time, as seconds since 1970 by the clock on the wall; what the time zone makes of them is the
business of ``occurrences``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from croniter import croniter

from django_jobs.cron.days import ALL_MONTHS, Days
from django_jobs.cron.fields import DAY, MONTH, WEEKDAY, hashed_months, rewritten
from django_jobs.exceptions import InvalidSchedule

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
    """When within a day: every minute of these in every hour of these, and so its seconds."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    def first_from(self, second: int) -> int | None:
        """The first time that fits, in seconds of the day, not before ``second``."""
        for hour in self.hours:
            if hour * 3600 + 3599 < second:
                continue
            for minute in self.minutes:
                start = hour * 3600 + minute * 60
                if start + self.seconds[-1] >= second:
                    return start + next(one for one in self.seconds if start + one >= second)
        return None


@dataclass(frozen=True, slots=True)
class Expression:
    """A right expression. ``texts`` are its fields as written, nicknames resolved."""

    text: str
    texts: tuple[str, ...]
    expanded: _Expanded
    """The values of each field, in the order of FIELDS; ``["*"]`` is every one."""
    times: Times
    days: Days

    @property
    def paced(self) -> bool:
        """True for what is meant as an interval rather than as times of the day."""
        return any(
            "*" in text or "/" in text or values == ["*"]
            for place, (text, values) in enumerate(zip(self.texts, self.expanded, strict=True))
            if place in _TIMES
        )

    def next_wall(self, wall: int) -> int | None:
        """The first second after ``wall`` that fits; None where none does for fifty years."""
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

    ``hash_id`` decides what ``H`` in it stands for, the same for the same one.
    """
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST:
        raise InvalidSchedule(f"{text!r} is no cron expression; give a text such as '0 2 * * *'")
    # A nickname such as @daily would be hashed as well if there were something to hash with.
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
    fields = re.findall(r"\S+", text.lower(), re.ASCII)  # croniter splits at no other space
    readable = rewritten(text, fields)
    try:
        found = croniter(readable, 0.0, hash_id=hash_id)
    except (ValueError, OverflowError) as error:  # CroniterError is a ValueError
        raise InvalidSchedule(f"{text!r} is no cron expression: {error}") from None
    texts = tuple(found.expressions) if text.startswith("@") else tuple(fields)
    expanded: _Expanded = tuple(["*"] if "*" in values else values for values in found.expanded)
    times = Times(_numbers(expanded, 1, 24), _numbers(expanded, 0, 60), _seconds(expanded))
    expression = Expression(text, texts, expanded, times, _days(found, texts))
    _refuse_what_never_comes(expression)
    return expression


def _numbers(expanded: _Expanded, place: int, size: int) -> tuple[int, ...]:
    if expanded[place] == ["*"]:
        return tuple(range(size))
    return tuple(sorted(value for value in expanded[place] if isinstance(value, int)))


def _seconds(expanded: _Expanded) -> tuple[int, ...]:
    return _numbers(expanded, SECONDS_AT, 60) if len(expanded) > SECONDS_AT else (0,)


def _days(found: Any, texts: tuple[str, ...]) -> Days:  # croniter ships no types
    """A field says nothing where it is left open; ``*/2`` and ``1-31`` say days."""
    months, dates, weekdays = (found.expanded[place] for place in (MONTH, DAY, WEEKDAY))
    days = Days(months=ALL_MONTHS if "*" in months else frozenset(months))
    if not _is_open(texts[DAY]):
        nearest = frozenset(found.nearest_weekday)
        numbers = range(1, 32) if "*" in dates else (one for one in dates if one != "l")
        days = replace(
            days, dates=frozenset(numbers) - nearest, on_last="l" in dates, nearest=nearest
        )
    if not _is_open(texts[WEEKDAY]):
        nth = frozenset(
            (day, which) for day, some in found.nth_weekday_of_month.items() for which in some
        )
        plain = range(7) if "*" in weekdays else () if nth else weekdays
        days = replace(days, weekdays=frozenset(plain), nth=nth)
    return days


def _is_open(field: str) -> bool:
    return not {"*", "?"}.isdisjoint(field.split(","))


def _refuse_what_never_comes(expression: Expression) -> None:
    # Whatever the name is now: another one must not make a right expression wrong.
    for months in hashed_months(expression.texts[MONTH]):
        if replace(expression.days, months=months).first_from(_SOME_DAY) is None:
            raise InvalidSchedule(
                f"{expression.text!r} never comes under some names, as 'H' may stand for a month "
                "without such a day; write the months, or 'L' for the last day"
            )
    if expression.days.first_from(_SOME_DAY) is None:
        raise InvalidSchedule(f"{expression.text!r} never comes: no year has such a day")


def changed_meaning(text: str) -> str | None:
    """How an expression's meaning differs from that under croniter 6, or None.

    Since croniter 7 a step that starts at a field's greatest value means that value alone;
    before, it meant the whole field.
    """
    for place, written in enumerate(text.lower().split()[: len(_MAXIMA)]):
        for item in written.split(","):
            if re.fullmatch(rf"(?:{_MAXIMA[place]})/\d+", item):
                return (
                    f"{item!r} in the field of the {FIELDS[place]} is {item.split('/')[0]!r} alone"
                )
    return None
