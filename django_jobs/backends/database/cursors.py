"""Where claims go on after one was slow, so that they do not read the same dead entries again.

While an old transaction is open, PostgreSQL can remove no index entry of a job that was
claimed since: every claim would read all of them, and there are more after each. So when
a claim from the start of the index was slow, those after it go on behind the last job
that was taken, for a while that is a multiple of what it took. If that is no faster, it
was not for dead entries that it took so long, and they start at the start as ever.

What that means for the order: a job that comes to stand before that place (a higher
priority, a retry that returned) is seen by the next claim from the start. A claim that
finds nothing looks from the start before it says so. Where no claim is slow, every one
starts at the start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SLOW_SECONDS = 0.01
GOES_ON_FOR = 4
"""How many times what the slow claim took. It bounds the share of time that such claims take."""
LONGEST_SECONDS = 5.0
PAUSE_SECONDS = 10.0
"""For how long a cursor that was of no use is not tried again."""


class Place(NamedTuple):
    """Where a job stands in the order of its queue."""

    rank: int
    due: int
    id: str


@dataclass(slots=True)
class _Cursor:
    slow: float
    until: float
    place: Place


class Cursors:
    """The places of the queues that are claimed from slowly."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._cursors: dict[str, _Cursor] = {}
        self._useless_until: dict[str, float] = {}

    def place(self, queue: str) -> Place | None:
        """Behind which job to look; None for the start."""
        cursor = self._cursors.get(queue)
        if cursor is None:
            return None
        if self._monotonic() >= cursor.until:
            del self._cursors[queue]
            return None
        return cursor.place

    def looked(self, queue: str, seconds: float, last: Place | None) -> None:
        """A claim from the start took so long, and this was the last job it took."""
        if seconds < SLOW_SECONDS or last is None:
            return
        now = self._monotonic()
        if now >= self._useless_until.get(queue, now):
            until = now + min(GOES_ON_FOR * seconds, LONGEST_SECONDS)
            self._cursors[queue] = _Cursor(seconds, until, last)

    def went_on(self, queue: str, seconds: float, last: Place | None) -> None:
        """A claim from a place took so long, and jobs up to this one, or none."""
        cursor = self._cursors[queue]
        if last is None:
            del self._cursors[queue]
        elif seconds > cursor.slow / 2:
            del self._cursors[queue]
            self._useless_until[queue] = self._monotonic() + PAUSE_SECONDS
        else:
            cursor.place = last
