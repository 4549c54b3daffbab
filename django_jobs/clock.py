"""Time as whole microseconds since 1970-01-01 UTC.

One integer means the same on every store, in every session zone and on both sides of
a daylight-saving change. Stores have clocks of their own; the ones here serve stores
in this process, and tests.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

SECOND = 1_000_000
EARLIEST, LATEST = -30_000_000_000 * SECOND, 250_000_000_000 * SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Anything that can tell the time in microseconds."""

    def now(self) -> int:
        """Microseconds since the epoch."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        return time.time_ns() // 1000


class Stopwatch:
    """Starts at this machine's clock, and goes on with the monotonic clock.

    So lengths of time are right even if the machine's clock is set meanwhile.
    """

    __slots__ = ("_began", "started")

    def __init__(self) -> None:
        self.started = time.time_ns() // 1000
        self._began = time.monotonic_ns()

    def now(self) -> int:
        """Microseconds since the epoch, never before it was started."""
        return self.started + (time.monotonic_ns() - self._began) // 1000


class ManualClock:
    """A clock that stands still until ``advance()``; for tests."""

    def __init__(self, start: int = 1_700_000_000 * SECOND) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += to_microseconds(seconds)


def to_microseconds(seconds: float | timedelta) -> int:
    """A length of time in microseconds, exact for timedeltas."""
    if isinstance(seconds, timedelta):
        return seconds // timedelta(microseconds=1)
    return round(seconds * SECOND)


def from_datetime(moment: datetime) -> int:
    """An aware datetime as microseconds since the epoch."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_datetime(microseconds: int) -> datetime:
    """Microseconds since the epoch as an aware datetime in UTC, within the years of datetime."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return to_datetime(within_years(microseconds))


def within_years(microseconds: int) -> int:
    """The nearest moment that every database and every time zone can represent."""
    return min(max(microseconds, EARLIEST), LATEST)
