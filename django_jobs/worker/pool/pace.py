"""Average run times of handlers, and how many jobs to hand over because of them."""

from __future__ import annotations

import math

CHUNK_SECONDS = 0.008
LARGEST_CHUNK = 256
AHEAD_SECONDS = 0.02
LONG_SECONDS = 0.5
BESIDE_SECONDS = 0.000_015  # what a child does for a job before and after it runs
LARGEST_PROMPT = 64
_WEIGHT = 0.2


class Pace:
    """A moving mean of run times, by handler."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}
        self._latest: float | None = None

    def observe(self, handler: str, seconds: float) -> None:
        """Record the time of a run."""
        previous, seconds = self._means.get(handler), seconds + BESIDE_SECONDS
        mean = seconds if previous is None else previous + _WEIGHT * (seconds - previous)
        self._means[handler] = self._latest = mean

    def chunk(self, handler: str) -> int:
        """How many jobs of a handler are a few milliseconds of work; 1 if it never ran."""
        mean = self._means.get(handler)
        if mean is None:
            return 1
        return _clamped(CHUNK_SECONDS / max(mean, 1e-6))

    def prompt(self, name: str) -> int:
        """How many jobs of a kind one lane begins within a few milliseconds."""
        return min(self.chunk(name), LARGEST_PROMPT)

    def jobs_within(self, seconds: float) -> float:
        """How many jobs like the latest run in this time, at least two."""
        return math.inf if self._latest is None else max(seconds / max(self._latest, 1e-6), 2.0)

    def ahead(self, children: int) -> int:
        """How many leases so many children should hold beyond what they run."""
        if self._latest is None or self._latest > LONG_SECONDS:
            return 0
        ahead = math.ceil(children * AHEAD_SECONDS / max(self._latest, 1e-6))
        return min(ahead, children * LARGEST_CHUNK * 2)


def _clamped(count: float) -> int:
    return max(1, min(int(count), LARGEST_CHUNK))
