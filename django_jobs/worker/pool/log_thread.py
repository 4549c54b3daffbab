"""Writes the log from a thread, so that a blocked log pipe cannot block the supervisor.

Writing to a pipe whose reader hangs blocks until the reader goes on. If the supervisor had to
wait for it, leases would end under running handlers.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from django_jobs.telemetry.events import LogLost
from django_jobs.telemetry.logs import write_now

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_WAITING = 10_000


class LogThread:
    """Runs calls that write the log, in the order in which they were submitted."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._ends = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="django_jobs-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Callable[[], object]) -> None:
        """Have a call run soon; never blocks. Calls beyond MOST_WAITING are dropped and counted."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                self._dropped += 1
                return
            if not self._waiting:
                self._changed.notify()
            self._waiting.append(work)

    def end(self, patience: float) -> bool:
        """Run the calls that are left; False if that takes longer than ``patience`` seconds."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while batch := self._next():
            for work in batch:
                with contextlib.suppress(Exception):  # the log's reader has gone; the work goes on
                    work()

    def _next(self) -> list[Callable[[], object]]:
        """Wait for calls and return them; empty at the end."""
        with self._changed:
            while not (self._waiting or self._ends):
                self._changed.wait()
            batch = list(self._waiting)
            self._waiting.clear()
            if self._dropped:
                batch.append(partial(write_now, LogLost(count=self._dropped)))
                self._dropped = 0
            return batch
