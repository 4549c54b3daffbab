"""Rate limits, a number of starts in any window of time: arithmetic only, no store and no clock.

A claim counts its jobs and fixes a moment: each job starts before it, or not at all. Jobs count in
the slot of that moment, a small part of the window, and until a window after it. So no window,
wherever it begins, holds more starts than the limit: when the last of them was claimed, all the
others still counted.
"""

from __future__ import annotations

import re
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from django_jobs.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_jobs.backends.values import Lease


SLOTS = 200
LEAST_LATE, MOST_LATE = 40_000, SECOND
_UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}
_SLOT = re.compile(r"[0-9]{1,18}")
_RATE = re.compile(r"([1-9]\d{0,8})/([smhd])")


class Rate(NamedTuple):
    """A limit per window, in microseconds."""

    limit: int
    window: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """``"60/m"`` and the like; raises ValueError."""
        match = _RATE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no rate; write a number and a unit, such as 60/m or 5/s")
        return cls(int(match[1]), _UNITS[match[2]])

    @property
    def slot(self) -> int:
        """How long a slot is."""
        return self.window // SLOTS

    @property
    def late(self) -> int:
        """How long after its claim a job may start; the limit loses this much of each window."""
        return min(max(self.slot, LEAST_LATE), MOST_LATE)


class Usage(NamedTuple):
    """The number of starts in each slot that still counts."""

    rate: Rate
    counts: Mapping[int, int]

    @classmethod
    def read(cls, rate: Rate, stored: object, now: int) -> Self:
        """Read what a store kept, which may be for another rate, missing or invalid."""
        if not isinstance(stored, dict) or stored.get("slot") != rate.slot:
            return cls(rate, {})
        kept = stored.get("counts")
        counts = {
            int(slot): count
            for slot, count in (kept.items() if isinstance(kept, dict) else ())
            if _SLOT.fullmatch(slot) and type(count) is int and count > 0
        }
        # A clock may step back, but no further than its window.
        first, last = now // rate.slot - SLOTS, now // rate.slot + 2 * SLOTS
        return cls(rate, {slot: count for slot, count in counts.items() if first <= slot <= last})

    def free(self) -> int:
        """How many may start now."""
        return max(self.rate.limit - sum(self.counts.values()), 0)

    def added(self, count: int, latest: int) -> Usage:
        """With ``count`` jobs that start before the moment ``latest``."""
        slot = latest // self.rate.slot
        return Usage(self.rate, {**self.counts, slot: self.counts.get(slot, 0) + count})

    def without(self, count: int, latest: int) -> Usage:
        """Without ``count`` jobs that were to start before the moment ``latest`` and did not.

        They are only in that slot. Once it no longer counts, there is nothing to take back.
        """
        slot = latest // self.rate.slot
        left = max(self.counts.get(slot, 0) - count, 0)
        return Usage(self.rate, {**self.counts, slot: left})

    def free_in(self, now: int) -> int:
        """Microseconds until another job may start."""
        over = sum(self.counts.values()) - self.rate.limit + 1
        for slot in sorted(self.counts):
            if over <= 0:
                break
            over -= self.counts[slot]
            if over <= 0:
                return max((slot + SLOTS + 1) * self.rate.slot - now, 0)
        return 0

    def to_store(self) -> dict[str, object]:
        """The form that stores keep."""
        counts = {str(slot): count for slot, count in self.counts.items() if count}
        return {"slot": self.rate.slot, "counts": counts}


# How long after its claim a job of a queue with a rate limit may start.

CALM_SECONDS = 10.0
REMEMBERED = 32  # claims whose jobs have not been returned or forgotten yet


class Lateness:
    """How long after its claim a job of a queue may start, as this process needs it.

    If a claim is answered so late that not even its first job can start, the next claims allow
    twice as long, up to a window; otherwise none would ever start. That is undone when it has
    been enough for a while. Jobs that were late because they waited behind others do not count.
    """

    def __init__(self) -> None:
        self._doublings = 0
        self._since = float("-inf")
        self._firsts: deque[tuple[str, str, int]] = deque(maxlen=REMEMBERED)

    def allowed(self, rate: Rate) -> int:
        """The allowed microseconds from the claim on."""
        now = time.monotonic()
        if self._doublings and now > self._since + CALM_SECONDS:
            self._doublings, self._since = self._doublings - 1, now
        return min(rate.late << self._doublings, rate.window)

    def claimed(self, first: Lease) -> None:
        """The first job of a claim is about to start."""
        self._firsts.append((first.id, first.token, self._doublings))

    def returned(self, rate: Rate, leases: Sequence[Lease]) -> None:
        """These leases did not start; further claims may have been made before that was known."""
        late = {(lease.id, lease.token) for lease in leases if lease.is_late}
        for *first, doublings in tuple(self._firsts) if late else ():
            # A claim that was allowed less than is allowed now does not count.
            too_little = tuple(first) in late and doublings >= self._doublings
            if too_little and self.allowed(rate) < rate.window:
                self._doublings, self._since = self._doublings + 1, time.monotonic()
