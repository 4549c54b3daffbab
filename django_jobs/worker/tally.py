"""How many jobs of each queue ended how, told to the store now and then.

It is for charts: a worker that is killed takes the counts of its last seconds along.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from django.db import Error

from django_jobs.backends.base import Settled
from django_jobs.backends.database.backend import DatabaseBackend
from django_jobs.backends.database.minutes import add_counts
from django_jobs.clock import to_microseconds
from django_jobs.execution.outcome import Failed, Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_jobs.backends.base import Backend
    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.settle import Run, Verdict

TOLD_EVERY_SECONDS = 10.0
# What a delivery counts as, by the status of its report; all others were only claimed.
_COUNTED = {
    "acked": ("succeeded",),
    "requeued": ("failed", "retried"),
    "dead-lettered": ("failed", "dead"),
    "rejected": ("dead",),
    "crashed": ("dead",),
}


class Tally:
    """Counts for one backend; nothing where its jobs are not in a database. For any thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend if isinstance(backend, DatabaseBackend) else None
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._lock = threading.Lock()
        self._tell_at = time.monotonic() + TOLD_EVERY_SECONDS

    def done(self, settled: Iterable[tuple[Run, Outcome, Verdict]]) -> None:
        """Deliveries were settled; those that were only given back do not count."""
        if self._backend is None:
            return
        sums: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for run, outcome, verdict in settled:
            if verdict.answer is not Settled.SETTLED or isinstance(outcome, Interrupted):
                continue
            lease = run.lease
            key = lease.queue, _counted(outcome, verdict)
            times = sums.get(key) or sums.setdefault(key, [0, 0, 0])
            times[0] += 1
            times[1] += max(run.finished_at - run.started_at, 0)  # below it a clock was set
            times[2] += max(run.started_at - lease.message.header.available_at, 0)
        for (queue, counted), (count, ran, waited) in sums.items():
            self._add(queue, counted, count, ran, waited)

    def ended(self, queue: str, status: str, seconds: float) -> None:
        """The same, where no more is known of it."""
        if self._backend is not None:
            self._add(queue, _COUNTED.get(status, ()), 1, to_microseconds(seconds), 0)

    def _add(self, queue: str, counted: tuple[str, ...], count: int, ran: int, waited: int) -> None:
        with self._lock:
            counts = self._counts[queue]
            counts["claimed"] += count
            counts["run_microseconds"] += ran
            counts["wait_microseconds"] += waited
            for name in counted:
                counts[name] += count

    def tell_now_and_then(self) -> None:
        """Tell when it is time to."""
        if self._counts and time.monotonic() >= self._tell_at:
            self.tell()

    def tell(self) -> None:
        """Add what was counted to the minute that it is in the store."""
        self._tell_at = time.monotonic() + TOLD_EVERY_SECONDS
        if self._backend is None or not self._counts:
            return
        with self._lock:
            counts, self._counts = self._counts, defaultdict(Counter)
        add_counts(self._backend.database, self._backend.clock, self._backend.alias, counts)

    def end(self) -> None:
        """Tell the last counts. Should the store not answer, they are lost."""
        with suppress(Error):
            self.tell()


def _counted(outcome: Outcome, verdict: Verdict) -> tuple[str, ...]:
    if verdict.status == "dead-lettered" and not isinstance(outcome, Failed):
        return ("dead",)
    if verdict.status == "crashed" and not verdict.dead:
        return ("retried",)
    return _COUNTED.get(verdict.status, ())
