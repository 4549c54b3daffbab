"""Jobs that come as fast as they go, and the rate at which they go, in steps.

So a worker is watched that never runs out of work and never has a huge backlog, for as long
as something else happens beside it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLL_SECONDS = 0.02
RECOVERED = 0.9


@dataclass
class Stream:
    """Keeps enough waiting for a worker that drains, and counts what it ran."""

    ran: Callable[[], int]
    fill: Callable[[int, int], object]  # enqueue so many jobs, numbered from this one on
    backlog: int = 20_000
    at_once: int = 2_000
    step_seconds: float = 5.0
    enqueued: int = 0  # so far
    least_waiting: int = field(init=False)

    def __post_init__(self) -> None:
        self.least_waiting = self.backlog

    def fill_up(self) -> None:
        """Enqueue a backlog, before or after the worker has begun."""
        while self.enqueued < self.backlog:
            self._more()

    def step(self, seconds: float) -> float:
        """The jobs that ran per second, during so many seconds or one feed that takes longer."""
        began, before = time.monotonic(), self.ran()
        while True:
            self._feed()
            if (took := time.monotonic() - began) >= seconds:
                return (self.ran() - before) / took

    def steps(self, seconds: float) -> Iterator[float]:
        """The rates of equal steps that fill so many seconds."""
        count = max(1, round(seconds / self.step_seconds))
        began = time.monotonic()
        for number in range(1, count + 1):
            yield self.step(began + seconds * number / count - time.monotonic())

    def recovery(self, before: float, within: float) -> Iterator[float]:
        """The rates of steps, until one is about as fast as before or it has taken too long."""
        began = time.monotonic()
        while time.monotonic() - began < within:
            found = self.step(self.step_seconds)
            yield found
            if recovered(found, before):
                return

    def _feed(self) -> None:
        waiting = self.enqueued - self.ran()
        self.least_waiting = min(self.least_waiting, waiting)
        if waiting >= self.backlog:
            time.sleep(POLL_SECONDS)
        else:
            self._more()

    def _more(self) -> None:
        self.fill(self.at_once, self.enqueued)
        self.enqueued += self.at_once


def recovered(found: float, before: float) -> bool:
    """Whether a rate is about what it was before."""
    return found >= RECOVERED * before
