"""When the clocks of a time zone change, from zoneinfo.

Moments are whole seconds since 1970 in UTC; wall times are the same by the clock on the wall.
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
    """A change of the clocks at ``moment``: seconds ahead of UTC ``before`` and ``after`` it."""

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
    delta = datetime.fromtimestamp(moment, zone).utcoffset()
    return int(delta.total_seconds()) if delta is not None else 0


def next_transition(zone: ZoneInfo, after: int, until: int) -> Transition | None:
    """The first transition after ``after`` and not after ``until``."""
    for year in range(_year(after), _year(until) + 1):
        moments, transitions = _transitions_of_year(zone, year)
        place = bisect_right(moments, after)
        if place < len(transitions):
            return transitions[place] if moments[place] <= until else None
    return None


def last_transition(zone: ZoneInfo, at: int) -> Transition | None:
    """The last transition in the two days up to and including ``at``; None if there is none."""
    for year in (_year(at), _year(at - 2 * _DAY)):
        moments, transitions = _transitions_of_year(zone, year)
        place = bisect_right(moments, at)
        if place and moments[place - 1] >= at - 2 * _DAY:
            return transitions[place - 1]
    return None


def _year(moment: int) -> int:
    return datetime.fromtimestamp(moment, UTC).year


@lru_cache(maxsize=8192)
def _transitions_of_year(zone: ZoneInfo, year: int) -> tuple[list[int], list[Transition]]:
    """The transitions of a year. Samples once a day: no zone has two changes within a day."""
    start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())
    transitions = []
    before = offset(zone, start - 1)
    low = start - 1
    while low < end - 1:
        high = min(low + _DAY, end - 1)
        after = offset(zone, high)
        if after != before:
            transitions.append(Transition(_exact_moment(zone, low, high, before), before, after))
        low, before = high, after
    return [transition.moment for transition in transitions], transitions


def _exact_moment(zone: ZoneInfo, low: int, high: int, before: int) -> int:
    """The first moment in (low, high] with another offset than ``before``."""
    while high - low > 1:
        middle = (low + high) // 2
        if offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return high
