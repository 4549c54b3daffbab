"""A thread that says what happened, so that a log nobody takes down stops nobody.

To write to a pipe whose reader is stuck takes as long as that is stuck. Were it the
supervisor that waits, leases would end under running handlers.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from django_jobs.telemetry.events import Unsaid
from django_jobs.telemetry.logs import write_now

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_UNSAID = 10_000


class Teller:
    """Says things one after the other, in the order in which they were handed in."""

    def __init__(self) -> None:
        self._unsaid: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._ends = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="django_jobs-teller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def say(self, work: Callable[[], object]) -> None:
        """Do it soon; never waits. What is too much is dropped, and counted."""
        with self._changed:
            if len(self._unsaid) >= MOST_UNSAID:
                self._dropped += 1
                return
            if not self._unsaid:
                self._changed.notify()
            self._unsaid.append(work)

    def end(self, patience: float) -> bool:
        """Say what is left; False when that was not possible in so many seconds."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while batch := self._next():
            for work in batch:
                with contextlib.suppress(Exception):  # whoever listened has gone; work goes on
                    work()

    def _next(self) -> list[Callable[[], object]]:
        """What is to be said now, as soon as there is anything; nothing at the end."""
        with self._changed:
            while not (self._unsaid or self._ends):
                self._changed.wait()
            batch = list(self._unsaid)
            self._unsaid.clear()
            if self._dropped:
                batch.append(partial(write_now, Unsaid(count=self._dropped)))
                self._dropped = 0
            return batch
