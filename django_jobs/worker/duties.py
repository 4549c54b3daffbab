"""What a worker does beside its jobs: housekeeping, its row in the table of workers, counts.

Housekeeping serves all workers: return lost jobs, make due ones ready, delete what has expired. It
is done in bounded steps at times spread between workers; a second worker finds nothing left to do.
One query tells what there is to do, which mostly is nothing.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections import Counter, defaultdict
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, TypeVar

from django.db import Error, connections

from django_jobs.backends.base import HasHousekeeping, HousekeepingDue, Settled, SharesTransactions
from django_jobs.backends.home import clock_of
from django_jobs.clock import to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.clock import for_people
from django_jobs.db.minutes import add_counts
from django_jobs.models import Worker
from django_jobs.outcome import Failed, Interrupted
from django_jobs.retry import spread
from django_jobs.routers import tables_beside
from django_jobs.telemetry import events, metrics
from django_jobs.telemetry.collectors import Prometheus
from django_jobs.telemetry.counters import add_counters
from django_jobs.telemetry.events import DutyFailed, HeartbeatFailed, emit
from django_jobs.telemetry.metrics import of_kind
from django_jobs.worker.relay import Relaying
from django_jobs.worker.store import ErrorKind, kind_of_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django_jobs.backends.base import Backend
    from django_jobs.db.clock import StoreClock
    from django_jobs.outcome import Outcome
    from django_jobs.worker.settle import Run, Verdict
    from django_jobs.worker.store import Outage


T = TypeVar("T")

BATCH = 1000
AGAIN_SECONDS = 3.0
"""A duty that failed is tried again after so long."""
REAPS_PER_LEASE = 3
HICCUP_SHARE = 12
"""An outage shorter than a lease divided by this ends no lease that is renewed in time."""
CLEAN_UP_SECONDS = 300.0
_LOOK = "look for housekeeping"


class DutyRunner:
    """Runs several duties, and keeps a failing one from stopping the others.

    A failed duty is tried again after a while, and reported once until it succeeds.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._failed_at: dict[str, float] = {}

    def do(self, duty: str, work: Callable[[], T]) -> T | None:
        """Return the result of the work; None if it failed now or just before.

        Raises the errors of an unavailable store, which concern all duties.
        """
        if self.rests(duty):
            return None
        try:
            answer = work()
        except Exception as error:
            if isinstance(error, Error | OSError) and kind_of_error(error) is ErrorKind.STORE:
                raise
            repeated = duty in self._failed_at
            self._failed_at[duty] = time.monotonic()
            if not repeated:
                about = {"backend": self._backend.alias, "duty": duty}
                events.emit(DutyFailed(**about, error=error))
            return None
        self._failed_at.pop(duty, None)
        return answer

    def rests(self, duty: str) -> bool:
        """Whether the duty failed recently and is not due for another try."""
        failed_at = self._failed_at.get(duty)
        return failed_at is not None and time.monotonic() < failed_at + AGAIN_SECONDS


class Housekeeping:
    """The housekeeping of one worker on one backend. ``outage``: that of the worker's store."""

    def __init__(
        self, backend: Backend, lease_seconds: float, outage: Outage | None = None
    ) -> None:
        self._backend = backend
        self._runner = DutyRunner(backend)
        self._lease_seconds = lease_seconds
        self._reaps_from = 0.0
        self._outage = outage
        if outage is not None:
            outage.on_end.append(self._let_others_come_back)
        self._every = lease_seconds / REAPS_PER_LEASE
        self._due_at = 0.0
        self._clean_up_by = time.monotonic() + CLEAN_UP_SECONDS

    def seconds_left(self) -> float:
        """How long until the next step is due."""
        return max(self._due_at - time.monotonic(), 0.0)

    def hurry(self) -> None:
        """Make the next step due now, unless a failed one has to wait for its next try."""
        if not self._runner.rests(_LOOK):
            self._due_at = 0.0

    def step(self) -> bool:
        """Do what is due; return whether a job may be ready because of it."""
        if self.seconds_left():
            return False
        self._due_at = time.monotonic() + AGAIN_SECONDS  # if something fails
        due = self._runner.do(_LOOK, self._look)
        if due is None:
            return False
        reaps = due.reap and self._may_reap()
        reaped = (self._runner.do("return lost jobs", self._reap) if reaps else 0) or 0
        if reaped:
            events.emit(events.Reaped(backend=self._backend.alias, count=reaped))
        # The query does not see everything that can be cleaned up, such as expired keys.
        cleans_up = due.clean_up or time.monotonic() >= self._clean_up_by
        cleaned = (self._runner.do("clean up", self._clean_up) if cleans_up else 0) or 0
        if cleans_up:
            # Nor does the next query see everything that was too much for one step.
            self._clean_up_by = time.monotonic() + (CLEAN_UP_SECONDS if cleaned < BATCH else 0.0)
        done = reaped < BATCH and cleaned < BATCH
        self._due_at = time.monotonic() + (spread(self._every) if done else 0.0)
        return reaped + cleaned > 0

    def _reap(self) -> int:
        return self._backend.reap_expired(limit=BATCH)

    def _look(self) -> HousekeepingDue:
        if isinstance(self._backend, HasHousekeeping):
            return self._backend.housekeeping_due()
        return HousekeepingDue(reap=True, clean_up=False)

    def _clean_up(self) -> int:
        return (
            self._backend.clean_up(limit=BATCH) if isinstance(self._backend, HasHousekeeping) else 0
        )

    def _may_reap(self) -> bool:
        # This query may be the first that the store has answered.
        back = self._outage is None or self._is_hiccup(self._outage.seconds)
        return back and time.monotonic() >= self._reaps_from

    def _let_others_come_back(self, seconds: float) -> None:
        """After an outage, reap nothing for one lease.

        Leases ended meanwhile because they could not be renewed. Their workers are alive, and are
        about to renew them or to give the jobs back. If connections only break again and again,
        lost jobs have to be returned all the same.
        """
        if not self._is_hiccup(seconds):
            self._reaps_from = time.monotonic() + self._lease_seconds

    def _is_hiccup(self, seconds: float) -> bool:
        return seconds < self._lease_seconds / HICCUP_SHARE


# ----------------------------------------------------------------- the worker's own row

SEEN_EVERY_SECONDS = 5.0
IDLE_FACTOR = 2  # idle workers must be cheap
FORGOTTEN_AFTER_SECONDS = 3600.0


class Presence:
    """The worker's row: what it serves, and when it was last seen.

    The worker of a broker writes it to the database that operators use, and goes on if that is
    away. ``draining``: whether an operator has asked the worker there to end.
    """

    def __init__(
        self,
        backend: Backend,
        queues: str,
        processes: int = 0,
        concurrency: int = 1,
        running: Callable[[], int] = lambda: 0,
    ) -> None:
        self.draining = False
        self._backend = backend
        self._database: str | None = None
        if not backend.ends_with_process:
            self._database = tables_beside(backend.home, get_settings())
        self._queues = queues
        self._processes = processes
        self._concurrency = concurrency
        self._running = running
        self._id = uuid.uuid4()
        self._written_at = float("-inf")

    def write(self) -> None:
        """Create the row, or update it if that is due."""
        if self._database is None or time.monotonic() < self._written_at + self._pause():
            return
        try:
            self._write_row(self._database)
        except Error as error:
            if self._database == self._backend.home:
                raise
            emit(HeartbeatFailed(backend=self._backend.alias, error=error))
            connections[self._database].close_if_unusable_or_obsolete()
        self._written_at = time.monotonic()

    def _pause(self) -> float:
        return SEEN_EVERY_SECONDS * (1 if self._running() else IDLE_FACTOR)

    def _write_row(self, alias: str) -> None:
        clock = _clock_of(self._backend, alias)
        workers = Worker.objects.using(alias)
        mine = workers.filter(pk=self._id)
        # One round trip, unless it was asked to drain.
        if mine.filter(draining=False).update(seen=clock.now(), running=self._running()):
            self.draining = False
        elif mine.update(seen=clock.now(), running=self._running()):
            self.draining = True
        else:
            now = clock.read(connections[alias])
            workers.create(
                id=self._id,
                backend=self._backend.alias,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=self._queues,
                processes=self._processes,
                concurrency=self._concurrency,
                running=self._running(),
                started_at=for_people(now),
                seen=now,
            )
            # Killed workers could not delete their rows.
            workers.filter(seen__lt=now - to_microseconds(FORGOTTEN_AFTER_SECONDS)).delete()

    def end(self) -> None:
        """Delete the row. If the store does not answer, another worker deletes it later."""
        if self._database is not None:
            with suppress(Error):
                Worker.objects.using(self._database).filter(pk=self._id).delete()


def _clock_of(backend: Backend, database: str) -> StoreClock:
    if isinstance(backend, SharesTransactions) and backend.home == database:
        return backend.clock
    return clock_of(database)


# ------------------------------------------------------------------------------- metrics

EVERY_SECONDS = 10.0


class Ledger:
    """Adds the worker's Prometheus counters to those of all workers in the database.

    Does nothing unless ``METRICS`` names the collector for Prometheus.
    """

    def __init__(self, backend: Backend) -> None:
        self._database: str | None = backend.home
        self._written_at = time.monotonic()

    def write(self) -> None:
        """Add the counters if that is due."""
        if time.monotonic() >= self._written_at + EVERY_SECONDS:
            self._written_at = time.monotonic()
            # A worker whose jobs are not in a database goes on without one, and adds them later.
            with suppress(Error) if self._database is None else nullcontext():
                self._add()

    def end(self) -> None:
        """Add the last counters. If the store does not answer, they are lost."""
        with suppress(Error, OSError):
            self._add()
            if metrics.gauges is not None:
                metrics.gauges.end()

    def _add(self) -> None:
        for collector in of_kind(Prometheus):
            if taken := collector.take():
                try:
                    add_counters(taken, self._database)
                except BaseException:
                    collector.give_back(taken)
                    raise


# -------------------------------------------------------------------------------- counts

WRITE_EVERY_SECONDS = 10.0
# What a delivery counts as, by the status of its report; others only count as claimed.
_COUNTED = {
    "acked": ("succeeded",),
    "requeued": ("failed", "retried"),
    "dead-lettered": ("failed", "dead"),
    "rejected": ("dead",),
    "crashed": ("dead",),
}


class Tally:
    """Counts how the jobs of each queue ended, and writes that to the store now and then.

    For charts: the counts of a killed worker's last seconds are lost. Does nothing for a backend
    without a database. Can be used by any thread.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._home = None if backend.home is None else tables_beside(backend.home, get_settings())
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._lock = threading.Lock()
        self._write_at = time.monotonic() + WRITE_EVERY_SECONDS

    def done(self, settled: Iterable[tuple[Run, Outcome, Verdict]]) -> None:
        """Count settled deliveries, except those that were only given back."""
        if self._home is None:
            return
        sums: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for run, outcome, verdict in settled:
            if verdict.answer is not Settled.SETTLED or isinstance(outcome, Interrupted):
                continue
            lease = run.lease
            key = lease.queue, _counted(outcome, verdict)
            times = sums.get(key) or sums.setdefault(key, [0, 0, 0])
            times[0] += 1
            times[1] += max(run.finished_at - run.started_at, 0)  # negative if a clock was set back
            times[2] += max(run.started_at - lease.message.header.available_at, 0)
        for (queue, counted), (count, ran, waited) in sums.items():
            self._add(queue, counted, count, ran, waited)

    def ended(self, queue: str, status: str, seconds: float) -> None:
        """Count a delivery from its report alone."""
        if self._home is not None:
            self._add(queue, _COUNTED.get(status, ()), 1, to_microseconds(seconds), 0)

    def _add(self, queue: str, counted: tuple[str, ...], count: int, ran: int, waited: int) -> None:
        with self._lock:
            counts = self._counts[queue]
            counts["claimed"] += count
            counts["run_microseconds"] += ran
            counts["wait_microseconds"] += waited
            for name in counted:
                counts[name] += count

    def write_if_due(self) -> None:
        """Write the counts if that is due."""
        if self._counts and time.monotonic() >= self._write_at:
            self.write()

    def write(self) -> None:
        """Add the counts to the store's current minute."""
        self._write_at = time.monotonic() + WRITE_EVERY_SECONDS
        if self._home is None or not self._counts:
            return
        with self._lock:
            counts, self._counts = self._counts, defaultdict(Counter)
        clock = _clock_of(self._backend, self._home)
        add_counts(self._home, clock, self._backend.alias, counts)

    def end(self) -> None:
        """Write the last counts. If the store does not answer, they are lost."""
        with suppress(Error):
            self.write()


def _counted(outcome: Outcome, verdict: Verdict) -> tuple[str, ...]:
    if verdict.status == "dead-lettered" and not isinstance(outcome, Failed):
        return ("dead",)
    if verdict.status == "crashed" and not verdict.dead:
        return ("retried",)
    return _COUNTED.get(verdict.status, ())


class Duties:
    """All duties of one worker on one backend, for one thread. A ``step`` does what is due.

    ``outage``: that of the worker's store. ``relay``: moves the outbox, if no other thread does.
    """

    def __init__(
        self,
        backend: Backend,
        lease_seconds: float,
        outage: Outage,
        presence: Presence,
        *,
        tally: Tally | None = None,
        relay: Relaying | None = None,
    ) -> None:
        self.housekeeping = Housekeeping(backend, lease_seconds, outage)
        self.tally = tally or Tally(backend)
        self.relay = relay or Relaying(None, 0.0)
        self._presence = presence
        self._ledger = Ledger(backend)
        self.do = DutyRunner(backend).do

    @property
    def draining(self) -> bool:
        """Whether an operator asked this worker to end."""
        return self._presence.draining

    def seconds_left(self) -> float:
        """How long until the next step is due."""
        return min(self.housekeeping.seconds_left(), self.relay.seconds_left())

    def step(self) -> bool:
        """Do what is due; return whether a job may be ready because of that."""
        self.do("write its row", self._presence.write)
        self.do("write its counts", self.tally.write_if_due)
        self.do("write its metrics", self._ledger.write)
        moved = self.relay.step()
        return self.housekeeping.step() or bool(moved and moved.jobs)

    def end(self) -> None:
        """Write the last counts and delete the row; ``Ledger.end`` does the same for METRICS."""
        try:
            self.tally.end()
        finally:
            self._presence.end()
