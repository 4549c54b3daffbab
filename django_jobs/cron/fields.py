"""The fields of a cron expression, written so that croniter reads them as they are meant.

What it would read otherwise is spelled out for it, and what has no one meaning is refused with
what to write instead. Fields are lower case and counted from 0, the minute.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from django_jobs.exceptions import InvalidSchedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
_LATEST_HASHED = 28  # every month has it, so that no name makes a schedule miss months

_RANGE = re.compile(r"([^-/#]+)-([^-/#]+?)(?:/(\d+))?(?:#\d+)?", re.ASCII)
_HASH = re.compile(r"h(?:\((\d+)-(\d+)\))?(?:/(\d+))?", re.ASCII)
_NTH = re.compile(r".+#.*|l\d+", re.ASCII)
_NAMED = f"(?:{'|'.join(_DAYS)})"

# What people bring along from other crons: in which fields, how it looks, what to write instead.
_UNSUPPORTED = (
    ({DAY}, r"l-\d+", "write 'L' for the last day, or a day such as '25'"),
    ({DAY}, r"lw|wl", "write 'L' for the last day, or a weekday such as '28W'"),
    ({WEEKDAY}, rf"l|\dl|l-?{_NAMED}|{_NAMED}l|\w+#l", "write 'L5' for the last Friday"),
    ({0, 1, MONTH, 5}, r"\?", "write '*'"),
)
# What stands alone in its field.
_ALONE = (({0, 1, DAY, MONTH, WEEKDAY, 5}, _HASH.pattern), ({DAY}, r"\d+w|w\d+"))


def rewritten(text: str, fields: Sequence[str]) -> str:
    """The fields as croniter shall read them; raises InvalidSchedule quoting ``text``."""
    if text.startswith("@"):
        return text
    return " ".join(_field(text, place, field) for place, field in enumerate(fields))


def _field(text: str, place: int, field: str) -> str:
    items = field.split(",")
    _refuse_unsupported(text, place, items)
    if place == DAY and (found := _HASH.fullmatch(field)):
        return _hashed_day(text, field, found)
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
    # croniter leaves out the weekday beside a numbered one where it is the same, or every one.
    if place == WEEKDAY and len({bool(_NTH.fullmatch(item)) for item in items}) > 1:
        raise InvalidSchedule(
            f"{text!r} mixes days of every week with those of certain weeks such as 'fri#2' or "
            "'L5'; write a schedule for each"
        )


def _hashed_day(text: str, field: str, found: re.Match[str]) -> str:
    """A day that every month has, whatever the name."""
    first, last = int(found[1] or 1), int(found[2] or _LATEST_HASHED)
    if first >= _LATEST_HASHED and last > first:
        raise InvalidSchedule(
            f"{text!r} has {field!r}, and 'H' stands for a day that every month has, 1 to "
            f"{_LATEST_HASHED}; write 'H', or the day itself"
        )
    if last <= _SIZES[DAY]:  # what is greater is croniter's to refuse
        last = min(last, _LATEST_HASHED)
    return f"h({first}-{last})" + (f"/{found[3]}" if found[3] else "")


def _item(text: str, place: int, item: str) -> str:
    if place == WEEKDAY and re.fullmatch(r"0*7/0*[1-9]\d*", item, re.ASCII):
        return str(_SUNDAY_AGAIN)  # nothing comes after it; croniter would begin from Sunday anew
    if (found := _RANGE.fullmatch(item)) is None:
        return item
    first, last = (_number(place, found[bound]) for bound in (1, 2))
    if first is None or last is None:
        return item  # croniter's to refuse
    if first == last or (place == WEEKDAY and (first, last) == (_SUNDAY_AGAIN, 0)):
        raise InvalidSchedule(
            f"{text!r} has the range {item!r} from a value to itself; write {found[1]!r} "
            "for that value alone, or '*' for all"
        )
    if first < last or not int(found[3] or 0):
        return item
    # croniter miscounts steps that go round the end.
    lowest, size = _LOWEST[place], _SIZES[place]
    around = range(first, last + size + 1, int(found[3]))
    return ",".join(str((value - lowest) % size + lowest) for value in around)


def _number(place: int, written: str) -> int | None:
    """What a bound stands for; None if it is not one of the field."""
    digits = written.isascii() and written.isdecimal()
    number = int(written) if digits else _NAMES.get(place, {}).get(written)
    highest = _SUNDAY_AGAIN if place == WEEKDAY else _LOWEST[place] + _SIZES[place] - 1
    return number if number is not None and _LOWEST[place] <= number <= highest else None


def hashed_months(field: str) -> Iterator[frozenset[int]]:
    """Each that the field of the month may stand for where it has an ``H``."""
    if (found := _HASH.fullmatch(field)) is None:
        return
    first, last, step = int(found[1] or 1), int(found[2] or 12), int(found[3] or 0)
    for month in range(first, min(first + step - 1, last) + 1 if step else last + 1):
        yield frozenset(range(month, last + 1, step) if step else {month})
