"""Queues of which this process knows that nothing can be claimed for a while, and why."""

from __future__ import annotations

import time

LOOK_SECONDS = 0.5
"""So old may be what a process knows of limits and breakers."""


class Closed:
    """Until when, as far as is known here: whoever claims looks again after that.

    Never for long, for what closes a queue can be changed at any time by an operator.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, str]] = {}

    def shut(self, queue: str, seconds: float, why: str) -> None:
        self._until[queue] = (time.monotonic() + min(seconds, LOOK_SECONDS), why)

    def left(self, queue: str) -> float:
        """Seconds for which nothing can be claimed from a queue."""
        until, _ = self._until.get(queue, (0.0, ""))
        return max(until - time.monotonic(), 0.0)

    def all(self) -> dict[str, float]:
        """The queues of which nothing can be claimed for so many seconds."""
        return {queue: left for queue in self._until if (left := self.left(queue))}

    def why(self, queue: str) -> str | None:
        """``rate-limited`` or ``circuit-open``, or None when it is not closed."""
        return self._until[queue][1] if self.left(queue) else None

    def open(self, queue: str) -> None:
        """Something changed."""
        self._until.pop(queue, None)
