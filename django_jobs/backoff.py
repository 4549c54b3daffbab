"""Pauses before retries: longer each time, and spread so that they do not coincide."""

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
        """After a success: begin with the first pause again."""
        self.pause = self._first


def spread(seconds: float) -> float:
    """A random pause of half to all of ``seconds``, so that not all retry at once."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing


FIRST_PAUSE = 0.005


class Restraint:
    """Back off while waits end at once although nothing can be claimed.

    A row that another worker has locked is due for every worker and cannot be claimed: without
    a pause a worker would query for it again and again.
    """

    def __init__(self, most: float) -> None:
        self._backoff = Backoff(FIRST_PAUSE, most)

    def pause_after(self, lasted: float) -> float:
        """Seconds to pause after a wait of ``lasted`` seconds."""
        if lasted >= self._backoff.pause:
            self.end()
            return 0.0
        return self._backoff.next() - lasted

    def end(self) -> None:
        """Reset: there was work."""
        self._backoff.reset()


# Schedules that cannot be decided now are skipped for a while, longer each time. Otherwise a
# failing schedule would be tried without a pause, and many of them would keep out those behind.


class Resting:
    """The schedules that are skipped, and until when."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, float]] = {}

    def put_off(self, key: str, first: float, longest: float) -> None:
        """Skip it for ``first`` seconds; twice as long each time, up to ``longest``."""
        _, before = self._until.get(key, (0.0, 0.0))
        pause = min(max(before * 2, first), longest)
        self._until[key] = time.monotonic() + spread(pause), pause

    def forget(self, key: str) -> None:
        """Stop skipping it: it was decided."""
        self._until.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._until.get(key, (0.0,))[0] > time.monotonic()

    def seconds_left(self, longest: float) -> float:
        """Seconds until the first of them is tried again, at most ``longest``."""
        now = time.monotonic()
        left = [ends - now for ends, _ in self._until.values() if ends > now]
        return min(left, default=longest)
