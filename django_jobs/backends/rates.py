"""So many jobs in any window of time: arithmetic only, no store and no clock.

A claim counts its jobs, and each of them starts before a moment that the claim fixed, or not
at all. They are counted in slots, a small part of the window each, in the slot of that moment,
and until a window after it. So no window of that length, wherever it begins, holds more starts
than the limit: when the last of them was claimed, all the others counted still.
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
        """How long after its claim a job may start: what it costs is kept free of starts."""
        return min(max(self.slot, LEAST_LATE), MOST_LATE)


class Usage(NamedTuple):
    """Starts by slot, of those slots that still count."""

    rate: Rate
    counts: Mapping[int, int]

    @classmethod
    def read(cls, rate: Rate, stored: object, now: int) -> Self:
        """From what a store kept, which may be of another rate, or nothing, or nonsense."""
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
        """With so many that start before a moment."""
        slot = latest // self.rate.slot
        return Usage(self.rate, {**self.counts, slot: self.counts.get(slot, 0) + count})

    def without(self, count: int, latest: int) -> Usage:
        """Without so many that were to start before a moment, and did not.

        Their slot alone has them. Once it counts no more there is nothing to take back.
        """
        slot = latest // self.rate.slot
        left = max(self.counts.get(slot, 0) - count, 0)
        return Usage(self.rate, {**self.counts, slot: left})

    def free_in(self, now: int) -> int:
        """Microseconds until another one may start."""
        over = sum(self.counts.values()) - self.rate.limit + 1
        for slot in sorted(self.counts):
            if over <= 0:
                break
            over -= self.counts[slot]
            if over <= 0:
                return max((slot + SLOTS + 1) * self.rate.slot - now, 0)
        return 0

    def to_store(self) -> dict[str, object]:
        """For a store."""
        counts = {str(slot): count for slot, count in self.counts.items() if count}
        return {"slot": self.rate.slot, "counts": counts}


# How long after its claim a job of a queue with a rate limit may start.


CALM_SECONDS = 10.0
REMEMBERED = 32  # claims of which nobody has heard yet what became of their jobs


class Lateness:
    """How late the jobs of one queue may start, as one process finds that it needs.

    Where a claim is answered so late that not even its first job can start, the next ones have
    twice as long, up to a window, or none would ever start. That is taken back when it has been
    enough for a while. What waited behind other jobs until it was too late says nothing.
    """

    def __init__(self) -> None:
        self._doublings = 0
        self._since = float("-inf")
        self._firsts: deque[tuple[str, str, int]] = deque(maxlen=REMEMBERED)

    def allowed(self, rate: Rate) -> int:
        """In microseconds, from the claim on."""
        now = time.monotonic()
        if self._doublings and now > self._since + CALM_SECONDS:
            self._doublings, self._since = self._doublings - 1, now
        return min(rate.late << self._doublings, rate.window)

    def claimed(self, first: Lease) -> None:
        """The first job of a claim is about to start."""
        self._firsts.append((first.id, first.token, self._doublings))

    def returned(self, rate: Rate, leases: Sequence[Lease]) -> None:
        """These did not start. Others may have been claimed before that is known."""
        late = {(lease.id, lease.token) for lease in leases if lease.is_late}
        for *first, doublings in tuple(self._firsts) if late else ():
            # What was allowed less than is allowed by now says nothing of what that is worth.
            too_little = tuple(first) in late and doublings >= self._doublings
            if too_little and self.allowed(rate) < rate.window:
                self._doublings, self._since = self._doublings + 1, time.monotonic()
