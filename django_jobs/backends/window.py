"""So many jobs in any window of time: arithmetic only, no store and no clock.

Starts are counted in slots, a small part of the window each. What lies in the window and
in a few slots beside it together stays within the limit, so that no window of that length,
wherever it begins, holds more; also when a job starts a little after it was counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from django_jobs.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOTS = 200
LATE_MICROSECONDS = 40_000
_UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND}
_SLOT = re.compile(r"[0-9]{1,18}")
_RATE = re.compile(r"([1-9]\d{0,8})/([smhd])")


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit per window, in microseconds."""

    limit: int
    window: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """``"60/m"`` and the like; raises ValueError."""
        found = _RATE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no rate; write a number and a unit, such as 60/m or 5/s")
        return cls(int(found[1]), _UNITS[found[2]])

    @property
    def slot(self) -> int:
        """How long a slot is."""
        return self.window // SLOTS

    @property
    def kept(self) -> int:
        """How many slots count: the window, the one that has just begun, and lateness."""
        return SLOTS + 1 + -(-LATE_MICROSECONDS // self.slot)


@dataclass(frozen=True, slots=True)
class Usage:
    """Starts by slot, of those slots that still count."""

    rate: Rate
    counts: Mapping[int, int]

    @classmethod
    def read(cls, rate: Rate, told: object, now: int) -> Self:
        """From what a store kept, which may be of another rate, or nothing, or nonsense."""
        if not isinstance(told, dict) or told.get("slot") != rate.slot:
            return cls(rate, {})
        kept = told.get("counts")
        counts = {
            int(slot): count
            for slot, count in (kept.items() if isinstance(kept, dict) else ())
            if _SLOT.fullmatch(slot) and type(count) is int and count > 0
        }
        # A clock may step back, but no further than its window.
        first, last = now // rate.slot - rate.kept + 1, now // rate.slot + rate.kept
        return cls(rate, {slot: count for slot, count in counts.items() if first <= slot <= last})

    def free(self) -> int:
        """How many may start now."""
        return max(self.rate.limit - sum(self.counts.values()), 0)

    def added(self, count: int, now: int) -> Usage:
        """With so many that start now."""
        slot = now // self.rate.slot
        return Usage(self.rate, {**self.counts, slot: self.counts.get(slot, 0) + count})

    def without(self, count: int, since: int) -> Usage:
        """Without so many that were counted at a moment or after it, and did not start.

        The oldest of those go: where others started meanwhile, what is left of both counts
        for longer and not for less long than it has to.
        """
        counts = dict(self.counts)
        for slot in sorted(slot for slot in counts if slot >= since // self.rate.slot):
            gone = min(counts[slot], count)
            counts[slot] -= gone
            count -= gone
        return Usage(self.rate, counts)

    def free_in(self, now: int) -> int:
        """Microseconds until another one may start."""
        over = sum(self.counts.values()) - self.rate.limit + 1
        for slot in sorted(self.counts):
            if over <= 0:
                break
            over -= self.counts[slot]
            if over <= 0:
                return max((slot + self.rate.kept) * self.rate.slot - now, 0)
        return 0

    def told(self) -> dict[str, object]:
        """For a store."""
        counts = {str(slot): count for slot, count in self.counts.items() if count}
        return {"slot": self.rate.slot, "counts": counts}
