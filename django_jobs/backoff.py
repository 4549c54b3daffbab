"""Keeps a worker from asking again and again for work that is there and not to be had.

A row that somebody else holds locked is due for everybody who looks, and for nobody who
claims.
"""

from __future__ import annotations

import random
import time

FIRST_PAUSE = 0.005


class Restraint:
    """Pauses that double as long as waits end at once and lead to nothing."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._least = FIRST_PAUSE

    def pause_after(self, lasted: float) -> float:
        """Seconds to pause after a wait that lasted so long."""
        least = self._least
        if lasted >= least:
            self.end()
            return 0.0
        self._least = min(least * 2, self._most)
        return least - lasted

    def end(self) -> None:
        """There was work."""
        self._least = FIRST_PAUSE


# Schedules that cannot be decided just now: left alone for a while, longer each time.
#
# Otherwise one that fails would be tried without a pause, and many of them would take the
# place of those behind them.


class Resting:
    """Who rests, and until when."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, float]] = {}

    def put_off(self, key: str, first: float, longest: float) -> None:
        """Leave it alone for ``first`` seconds; twice as long each time, up to ``longest``."""
        _, before = self._until.get(key, (0.0, 0.0))
        pause = min(max(before * 2, first), longest)
        # By chance, so that several schedulers do not come back at the same moment.
        ends = time.monotonic() + pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
        self._until[key] = ends, pause

    def forget(self, key: str) -> None:
        """It was decided."""
        self._until.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._until.get(key, (0.0,))[0] > time.monotonic()

    def seconds_left(self, longest: float) -> float:
        """Until the first of them is to be tried again, but no more than ``longest``."""
        now = time.monotonic()
        left = [ends - now for ends, _ in self._until.values() if ends > now]
        return min(left, default=longest)
