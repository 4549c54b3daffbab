"""When the clocks of a time zone are changed, from zoneinfo.

Moments are whole seconds since 1970 in UTC, wall times the same by the clock on the wall.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from django_jobs.exceptions import InvalidSchedule

_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Transition:
    """The clocks are changed: from ``moment`` on, wall time is that many seconds after UTC."""

    moment: int
    before: int
    after: int


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """The zone of an IANA name; raises InvalidSchedule."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):  # a folder of zones is an OSError
        raise InvalidSchedule(
            f"{name!r} is no time zone; give a name such as 'Europe/Paris' (where the system "
            "has no zones of its own, as on Windows: pip install tzdata)"
        ) from None


def offset(zone: ZoneInfo, moment: int) -> int:
    """Seconds to add to UTC for the clock on the wall."""
    found = datetime.fromtimestamp(moment, zone).utcoffset()
    return int(found.total_seconds()) if found is not None else 0


def next_transition(zone: ZoneInfo, after: int, until: int) -> Transition | None:
    """The first one after ``after`` and not after ``until``."""
    for year in range(_year(after), _year(until) + 1):
        moments, found = _of_year(zone, year)
        place = bisect_right(moments, after)
        if place < len(found):
            return found[place] if moments[place] <= until else None
    return None


def last_transition(zone: ZoneInfo, at: int) -> Transition | None:
    """The last one, up to and including ``at``, of the two days before; None if there is none."""
    for year in (_year(at), _year(at - 2 * _DAY)):
        moments, found = _of_year(zone, year)
        place = bisect_right(moments, at)
        if place and moments[place - 1] >= at - 2 * _DAY:
            return found[place - 1]
    return None


def _year(moment: int) -> int:
    return datetime.fromtimestamp(moment, UTC).year


@lru_cache(maxsize=8192)
def _of_year(zone: ZoneInfo, year: int) -> tuple[list[int], list[Transition]]:
    """Look once a day: no zone changes its clocks and takes it back within one."""
    start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())
    found = []
    before = offset(zone, start - 1)
    low = start - 1
    while low < end - 1:
        high = min(low + _DAY, end - 1)
        after = offset(zone, high)
        if after != before:
            found.append(Transition(_exactly(zone, low, high, before), before, after))
        low, before = high, after
    return [one.moment for one in found], found


def _exactly(zone: ZoneInfo, low: int, high: int, before: int) -> int:
    """The first moment in (low, high] with another offset than ``before``."""
    while high - low > 1:
        middle = (low + high) // 2
        if offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high
