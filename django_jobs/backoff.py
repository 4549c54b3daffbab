"""Pauses before something is tried again: longer each time, and not all at one moment."""

from __future__ import annotations

import random
import time


class Backoff:
    """Pauses that double from ``first`` to ``longest`` seconds. ``pause``: the next one."""

    __slots__ = ("_first", "_longest", "pause")

    def __init__(self, first: float, longest: float = float("inf")) -> None:
        self._first = self.pause = min(first, longest)
        self._longest = longest

    def next(self) -> float:
        """The seconds to pause now; twice as long the next time."""
        pause, self.pause = self.pause, min(self.pause * 2, self._longest)
        return pause

    def reset(self) -> None:
        """It went well: begin with the first pause again."""
        self.pause = self._first


def spread(seconds: float) -> float:
    """Half of it to all of it, by chance, so that many do not come back at the same moment."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing


FIRST_PAUSE = 0.005


class Restraint:
    """Pauses that double as long as waits end at once and lead to nothing.

    A row that others hold locked is due for all who look, and cannot be claimed: without a pause
    a worker would ask for it again and again.
    """

    def __init__(self, most: float) -> None:
        self._backoff = Backoff(FIRST_PAUSE, most)

    def pause_after(self, lasted: float) -> float:
        """Seconds to pause after a wait that lasted so long."""
        if lasted >= self._backoff.pause:
            self.end()
            return 0.0
        return self._backoff.next() - lasted

    def end(self) -> None:
        """There was work."""
        self._backoff.reset()


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
        self._until[key] = time.monotonic() + spread(pause), pause

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
