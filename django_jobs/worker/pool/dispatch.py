"""Who gets what: chunks of short jobs, suspects alone, nothing behind a busy child."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from django_jobs.worker.pool.pace import LONG_SECONDS, Pace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from django_jobs.worker.pool.crew import Child, Held
    from django_jobs.worker.pool.desk import Desk


class Dispatch:
    """The leases that wait in this worker, and the children they are for."""

    def __init__(self, children: Mapping[int, Child], desk: Desk, processes: int) -> None:
        self.ready: deque[Held] = deque()
        self._children = children
        self._desk = desk
        self._processes = processes
        self._pace = Pace()
        self._progress_at = time.monotonic()

    def observe(self, held: Held, seconds: float) -> None:
        """A job has ended after so long."""
        self._pace.observe(held.handler, seconds)
        self._progress_at = time.monotonic()

    def outstanding(self) -> int:
        return len(self.ready) + sum(len(child.given) for child in self._children.values())

    def wanted(self) -> int:
        """How many more leases could be used."""
        wanted = self._processes if self._is_slow() else self._pace.wanted(self._processes)
        return max(wanted - self.outstanding(), 0)

    def return_all(self, why: str) -> None:
        """What has not begun goes back to the store."""
        for child in self._children.values():
            self.ready.extend(child.take_back(len(child.given)))
        while self.ready:
            self._desk.give_back(self.ready.popleft(), why)

    def step(self) -> None:
        self._balance()
        self._hand_over()
        if self.ready and self._is_slow():
            # Fetched while jobs were short, and they no longer are: others may have time.
            while self.outstanding() > self._processes and self.ready:
                self._desk.give_back(self.ready.pop(), "the jobs before it take long")

    def _is_slow(self) -> bool:
        """Whether nothing has ended for a while: what is fetched now would only lie here."""
        return time.monotonic() - self._progress_at > LONG_SECONDS

    def _hand_over(self) -> None:
        for child in sorted(self._children.values(), key=lambda child: len(child.given)):
            self._drop_stale()
            if not self.ready:
                return
            if child.accepts:
                self._fill(child)

    def _drop_stale(self) -> None:
        now = time.monotonic()
        while self.ready and now > self.ready[0].fence:
            self._desk.give_back(self.ready.popleft(), "its lease could not be renewed in time")

    def _fill(self, child: Child) -> None:
        head = self.ready[0]
        if head.lease.suspect:
            if not child.given:
                child.give([self.ready.popleft()])
            return
        if any(held.lease.suspect for held in child.given.values()):
            return
        chunk = self._pace.chunk(head.handler)
        room = chunk - len(child.given)
        # A child that still has half of its chunk needs nothing yet.
        if room <= 0 or (child.given and room < chunk // 2):
            return
        if taken := list(self._taken(len(child.given))):
            if not child.given:
                self._progress_at = time.monotonic()
            child.give(taken)

    def _taken(self, count: int) -> Iterable[Held]:
        """Jobs from the head, as long as each is short enough to be one of so many."""
        now = time.monotonic()
        while self.ready:
            head = self.ready[0]
            if head.lease.suspect or now > head.fence or count >= self._pace.chunk(head.handler):
                return
            count += 1
            yield self.ready.popleft()

    def _balance(self) -> None:
        """No job waits behind a busy child while another child is idle."""
        if self.ready or not any(c.accepts and not c.given for c in self._children.values()):
            return
        busy = [child for child in self._children.values() if not child.killed]
        busiest = max(busy, key=lambda child: len(child.unstarted()))
        if waiting := len(busiest.unstarted()):
            self.ready.extend(busiest.take_back((waiting + 1) // 2))
