"""Describe a cron expression in words, so that people can check that it means what they want.

The words follow from what the expression means, not from how it is written: ``0,15,30,45`` and
``*/15`` read the same.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING

from django_jobs.cron.expression import ALL_MONTHS, LAST, parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.cron.expression import Days, Expression

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("", "January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_MOST_TIMES = 6  # listed one by one
_SHORTEST_RANGE = 3
_SHORTEST_MONTH = 28

Values = list[int] | None
"""The values of a field; None is every one."""


def in_words(text: str, hash_id: str = "") -> str:
    """What an expression means; raises InvalidSchedule for one that means nothing."""
    expression = parsed(text, hash_id)
    minutes, hours = _values(expression, 0), _values(expression, 1)
    seconds = _values(expression, 5) if len(expression.expanded) > 5 else [0]  # noqa: PLR2004 - the sixth
    days = _days(expression.days)
    if minutes and hours and seconds and len(minutes) * len(hours) * len(seconds) <= _MOST_TIMES:
        times = [_time(*at) for at in product(hours, minutes, seconds)]
        return f"at {_listed(times)} {days or 'every day'}"
    return ", ".join(part for part in (_pace(seconds, minutes, hours), days) if part)


def _values(expression: Expression, place: int) -> Values:
    values = expression.expanded[place]
    return None if values == ["*"] else [value for value in values if isinstance(value, int)]


def _time(hour: int, minute: int, second: int) -> str:
    return f"{hour:02d}:{minute:02d}" + (f":{second:02d}" if second else "")


# How often within a day.


def _pace(seconds: Values, minutes: Values, hours: Values) -> str:
    pace = _within_the_hour(minutes, hours)
    if seconds == [0]:
        return pace
    by_second = _every(seconds, "second", 60)
    if by_second.startswith("at "):
        return f"{pace} {by_second}"
    if minutes is None:
        return " ".join(part for part in (by_second, _while(hours)) if part)
    return f"{by_second} of a minute: {pace}"


def _within_the_hour(minutes: Values, hours: Values) -> str:
    if minutes is None or _step(minutes, 60):
        pace = _every(minutes, "minute", 60)
        return " ".join(part for part in (pace, _while(hours)) if part)
    return _hourly(minutes, hours)


def _hourly(minutes: list[int], hours: Values) -> str:
    """Certain minutes of the hour: "every 2 hours at minute 15"."""
    at = "" if minutes == [0] else f" {_at_minutes(minutes)}"
    if hours is None or _step(hours, 24):
        return f"{_every(hours, 'hour', 24)}{at}"
    if at:
        return f"{at.strip()} {_while(hours)}"
    return f"every hour {_while(hours)}" if _contiguous(hours) else _at_hours(hours)


def _at_hours(hours: list[int]) -> str:
    return f"at {_listed([_time(hour, 0, 0) for hour in hours])}"


def _at_minutes(minutes: list[int]) -> str:
    return f"at minute{'s' * (len(minutes) > 1)} {_listed(minutes)}"


def _every(values: Values, unit: str, size: int) -> str:
    if values is None:
        return f"every {unit}"
    step = _step(values, size)
    if not step:
        return f"at {unit}{'s' * (len(values) > 1)} {_listed(values)}"
    # A step that does not divide the hour starts again with each one.
    whole = {"second": "minute", "minute": "hour", "hour": "day"}[unit]
    return f"every {step} {unit}s" + (f" of each {whole}" if size % step else "")


def _while(hours: Values) -> str:
    if hours is None:
        return ""
    if step := _step(hours, 24):
        return f"in every {_nth(step)} hour from 00:00 on"
    if _contiguous(hours):
        return f"from {hours[0]:02d}:00 to {hours[-1]:02d}:59"
    return f"in the hour{'s' * (len(hours) > 1)} from {_listed([f'{h:02d}:00' for h in hours])}"


def _step(values: list[int], size: int) -> int:
    """The step of a field that is stepped through from its lowest value, or 0."""
    if len(values) < 2 or values[0] != 0:  # noqa: PLR2004 - two make a distance
        return 0
    step = values[1]
    return step if values == list(range(0, size, step)) else 0


# On which days.


def _days(days: Days) -> str:
    months = None if days.months == ALL_MONTHS else sorted(days.months)
    if days.every:
        return "" if months is None else f"in {_named(months, _MONTHS)}"
    # With both a date and a weekday either will do; the months hold for both, so both name them.
    parts = (_by_date(days, months), _by_weekday(days, months))
    return " and ".join(part for part in parts if part)


def _by_date(days: Days, months: Values) -> str:
    parts = []
    for day in sorted(days.nearest):
        missing = " (where there is one)" if day > _SHORTEST_MONTH else ""
        parts.append(f"the weekday nearest to day {day}{missing}")
    if days.dates:
        numbers = sorted(days.dates)
        parts.append(f"day{'s' * (len(numbers) > 1)} {_listed(_spans(numbers))}")
    if days.on_last:
        parts.append("the last day")
    month = "every month" if months is None else _named(months, _MONTHS)
    return f"on {' and '.join(parts)} of {month}" if parts else ""


def _by_weekday(days: Days, months: Values) -> str:
    parts = []
    if days.weekdays:
        monday_first = sorted(days.weekdays, key=lambda day: (day - 1) % 7)
        parts.append(_named(monday_first, _DAYS, cycle=7))
    if days.nth:
        numbered = sorted(days.nth, key=lambda pair: (pair[0], str(pair[1])))
        each = [f"the {_which(which)} {_DAYS[day]}" for day, which in numbered]
        parts.append(f"{_listed(each)} of the month")
    within = "" if months is None else f" in {_named(months, _MONTHS)}"
    return f"on {' and '.join(parts)}{within}" if parts else ""


def _which(number: int | str) -> str:
    return "last" if number == LAST else _nth(int(number))


# Lists.


def _named(values: list[int], names: Sequence[str], cycle: int = 0) -> str:
    if len(values) >= _SHORTEST_RANGE and _contiguous(values, cycle):
        return f"{names[values[0]]} to {names[values[-1]]}"
    return _listed([names[value] for value in values])


def _spans(values: list[int]) -> list[str]:
    """Numbers, with consecutive ones joined: 1 to 7, 15."""
    spans: list[list[int]] = []
    for value in values:
        if spans and spans[-1][-1] == value - 1:
            spans[-1].append(value)
        else:
            spans.append([value])
    texts: list[str] = []
    for span in spans:
        together = len(span) >= _SHORTEST_RANGE
        texts += [f"{span[0]} to {span[-1]}"] if together else map(str, span)
    return texts


def _contiguous(values: list[int], cycle: int = 0) -> bool:
    steps = {
        (later - earlier) % cycle if cycle else later - earlier
        for earlier, later in pairwise(values)
    }
    return steps == {1}


def _listed(values: Sequence[object]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number in {11, 12, 13} else ending}"
