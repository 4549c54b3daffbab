"""A cron expression by itself: when it is due by a clock that nobody ever changes.

croniter parses it. It works here on wall time alone, as seconds since 1970 by the clock on the
wall; what the time zone makes of them is the business of ``occurrences``.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from croniter import CroniterBadDateError, croniter

from django_jobs.exceptions import InvalidSchedule

FIELDS = ("minute", "hour", "day of the month", "month", "day of the week", "second")
SECONDS_AT = 5
LONGEST = 255

_TIMES = (0, 1, SECONDS_AT)  # the fields that say when within a day
_MAXIMA = ("59", "23", "31", "12|dec", "6|sat", "59")
_HASHED = re.compile(r"(?:^|[\s,])h(?:$|[\s,(/])", re.IGNORECASE)
_RANDOM = re.compile(r"(?:^|[\s,])r(?:$|[\s,(/])", re.IGNORECASE)
_EQUAL_RANGE = re.compile(r"(\w+)-(\w+)(?:/\d+)?")


@dataclass(frozen=True, slots=True)
class Expression:
    """A right expression. ``texts`` are its fields as written, nicknames resolved."""

    text: str
    texts: tuple[str, ...]
    _croniter: Any = field(repr=False, compare=False)

    @property
    def expanded(self) -> list[list[int | str]]:
        """The values of each field, in the order of FIELDS; ``["*"]`` is every one."""
        return self._croniter.expanded  # type: ignore[no-any-return]  # croniter ships no types

    @property
    def nth_weekdays(self) -> dict[int, set[int | str]]:
        """Weekdays written as ``5#2`` or ``L5``: which ones of the month."""
        return self._croniter.nth_weekday_of_month  # type: ignore[no-any-return]  # as above

    @property
    def nearest_weekdays(self) -> set[int]:
        """Days of the month written as ``15W``."""
        return self._croniter.nearest_weekday  # type: ignore[no-any-return]  # as above

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
        search = copy.copy(self._croniter)  # it remembers where it stands, and may be shared
        search.set_current(float(wall), force=True)
        try:
            return int(search.get_next(float))
        except CroniterBadDateError:
            return None


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
    try:
        found = croniter(text, 0.0, hash_id=hash_id)
    except (ValueError, OverflowError) as error:  # CroniterError is a ValueError
        raise InvalidSchedule(f"{text!r} is no cron expression: {error}") from None
    _refuse_equal_ranges(text, found.expressions)
    expression = Expression(text, tuple(found.expressions), found)
    if expression.next_wall(_SOME_DAY) is None:
        raise InvalidSchedule(f"{text!r} never comes: no year has such a day")
    return expression


_SOME_DAY = int((datetime(2024, 1, 1) - datetime(1970, 1, 1)).total_seconds())  # noqa: DTZ001 - wall time has no zone


def _refuse_equal_ranges(text: str, fields: list[str]) -> None:
    """Croniter takes 5-5 for the whole field; whoever writes it means 5."""
    for item in (item for written in fields for item in written.split(",")):
        bounds = _EQUAL_RANGE.fullmatch(item)
        if bounds and bounds[1] == bounds[2]:
            raise InvalidSchedule(
                f"{text!r} has the range {item!r} from a value to itself; write {bounds[1]!r} "
                "for that value alone, or '*' for all"
            )


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
