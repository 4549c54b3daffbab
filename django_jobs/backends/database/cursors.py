"""Where claims go on, so that each does not read the same dead index entries again.

While an old transaction is open, PostgreSQL can remove no index entry of a job that was
claimed since: every claim would read all of them, and there are more after each. So when
a claim from the start of the index passed many such entries, those after it go on behind
the last job that was taken, for a while that is a multiple of what it took.

What that means for the order: a job that comes to stand before that place (a higher
priority, a retry that returned) is seen by the next claim from the start. A claim that
finds nothing looks from the start before it says so. Where dead entries can be removed,
every claim starts at the start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 20_000
"""To read so many takes about as long as half a claim."""
GOES_ON_FOR = 4
"""How many times what that claim took. It bounds the share of time that such claims take."""
LONGEST_SECONDS = 5.0


class Place(NamedTuple):
    """Where a job stands in the order of its queue."""

    rank: int
    due: int
    id: str


@dataclass(slots=True)
class _Cursor:
    until: float
    place: Place


class Cursors:
    """The places of the queues that have many dead entries at their start."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._cursors: dict[str, _Cursor] = {}

    def place(self, queue: str) -> Place | None:
        """Behind which job to look; None for the start."""
        cursor = self._cursors.get(queue)
        if cursor is None:
            return None
        if self._monotonic() >= cursor.until:
            del self._cursors[queue]
            return None
        return cursor.place

    def looked(self, queue: str, passed: int, seconds: float, last: Place | None) -> None:
        """A claim from the start passed so many dead entries; this was the last job it took."""
        if passed >= MANY and last is not None:
            until = self._monotonic() + min(GOES_ON_FOR * seconds, LONGEST_SECONDS)
            self._cursors[queue] = _Cursor(until, last)

    def went_on(self, queue: str, last: Place | None) -> None:
        """A claim from a place took jobs up to this one, or found none."""
        if last is None:
            del self._cursors[queue]
        else:
            self._cursors[queue].place = last
