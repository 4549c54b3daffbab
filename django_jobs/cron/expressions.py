"""Cron expressions, written by functions that can be read: each returns a whole one.

Times are texts such as ``"02:00"`` or ``datetime.time``; days of the week are names or numbers,
0 being Sunday. Each raises InvalidSchedule.
"""

from __future__ import annotations

from datetime import time
from typing import TYPE_CHECKING

from django_jobs.exceptions import InvalidSchedule

if TYPE_CHECKING:
    from collections.abc import Iterable

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
Day = int | str


def every_minutes(minutes: int = 1) -> str:
    """Every so many minutes, from the full hour on: 1 to 59, best a divisor of 60."""
    step = _number("minutes", minutes, 1, 59)
    return "* * * * *" if step == 1 else f"*/{step} * * * *"


def every_hours(hours: int = 1, minute: int = 0) -> str:
    """Every so many hours, from midnight on: 1 to 23, best a divisor of 24."""
    step, at = _number("hours", hours, 1, 23), _number("minute", minute, 0, 59)
    return f"{at} * * * *" if step == 1 else f"{at} */{step} * * *"


def hourly_at(*minutes: int) -> str:
    """Every hour, at these minutes."""
    return f"{_numbers('minute', minutes or (0,), 0, 59)} * * * *"


def daily_at(*times: str | time) -> str:
    """Every day at these times, which must share their hour or their minute."""
    return f"{_clock(times)} * * *"


def weekly_on(day: Day | Iterable[Day], at: str | time = "00:00") -> str:
    """Every week on a day, or on several: ``weekly_on("mon", "08:30")``."""
    days = [day] if isinstance(day, str | int) else list(day)
    return f"{_clock([at])} * * {','.join(_day(one) for one in days)}"


def weekdays_at(at: str | time = "00:00") -> str:
    """Monday to Friday."""
    return f"{_clock([at])} * * 1-5"


def weekends_at(at: str | time = "00:00") -> str:
    """Saturday and Sunday."""
    return f"{_clock([at])} * * 0,6"


def monthly_on(day: int | str = 1, at: str | time = "00:00") -> str:
    """Every month on a day from 1 to 31, or on the ``"last"``. Not every month has a 31st."""
    return f"{_clock([at])} {_day_of_month(day)} * *"


def quarterly(day: int | str = 1, at: str | time = "00:00") -> str:
    """On a day of January, April, July and October."""
    return f"{_clock([at])} {_day_of_month(day)} 1,4,7,10 *"


def yearly(month: int = 1, day: int | str = 1, at: str | time = "00:00") -> str:
    """Once a year."""
    return f"{_clock([at])} {_day_of_month(day)} {_number('month', month, 1, 12)} *"


def between_hours(first: int, last: int, every: int = 60) -> str:
    """Every so many minutes while the hour is ``first`` to ``last``, both included."""
    start, end = _number("first", first, 0, 23), _number("last", last, 0, 23)
    step = _number("every", every, 1, 60)
    minutes = {1: "*", 60: "0"}.get(step, f"*/{step}")
    if start <= end:
        return f"{minutes} {_range(start, end)} * * *"
    return f"{minutes} {_range(start, 23)},{_range(0, end)} * * *"


def _range(start: int, end: int) -> str:
    # A range from a value to itself would be read as the whole field.
    return f"{start}-{end}" if start < end else str(start)


def _clock(times: Iterable[str | time]) -> str:
    """The fields of the minute and the hour."""
    read = [_time(one) for one in times]
    if not read:
        raise InvalidSchedule("no time is given; give one such as '02:00'")
    hours, minutes = sorted({one.hour for one in read}), sorted({one.minute for one in read})
    if len(hours) * len(minutes) != len(set(read)):
        raise InvalidSchedule(
            f"{', '.join(f'{one:%H:%M}' for one in read)} cannot be said by one expression; "
            "give each time a schedule of its own"
        )
    return f"{','.join(map(str, minutes))} {','.join(map(str, hours))}"


def _time(value: str | time) -> time:
    try:
        found = value if isinstance(value, time) else time.fromisoformat(_padded(value))
    except (ValueError, TypeError, AttributeError):
        raise InvalidSchedule(f"{value!r} is no time; give one such as '02:00'") from None
    if found.second or found.microsecond:
        raise InvalidSchedule(f"{value!r} has seconds; write the expression with six fields")
    return found.replace(tzinfo=None)


def _padded(text: str) -> str:
    """'2:30' is as good as '02:30', and '14' as '14:00'."""
    hour, _, minute = text.strip().partition(":")
    return f"{int(hour):02d}:{minute or '00'}"


def _day(value: Day) -> str:
    if isinstance(value, str) and value.lower()[:3] in _DAYS:
        return str(_DAYS.index(value.lower()[:3]))
    return str(_number("day", value, 0, 7) % 7)


def _day_of_month(value: int | str) -> str:
    return "l" if value == "last" else str(_number("day", value, 1, 31))


def _numbers(name: str, values: Iterable[int], low: int, high: int) -> str:
    return ",".join(str(one) for one in sorted({_number(name, one, low, high) for one in values}))


def _number(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidSchedule(f"{name} is {value!r}; give a whole number from {low} to {high}")
    return value
