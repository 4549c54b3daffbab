"""Gauges of queues and workers for collectors and for the view, read once for all of them."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.backends.home import jobs_database, store_now
from django_jobs.clock import to_microseconds
from django_jobs.models import Metric
from django_jobs.operations.health import seen_lately
from django_jobs.operations.overview import QueueOverview, overview
from django_jobs.telemetry import events
from django_jobs.telemetry.metrics import Gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

READ_EVERY_SECONDS = 5.0
TAKEN_OVER_AFTER_SECONDS = 150.0
"""More than twice the minute in which exporters usually report."""
COUNTED_AT_MOST = 20_000
"""Per queue and state; costs about a tenth of a second among ten million jobs on MariaDB."""
STATES = ("ready", "scheduled", "running", "blocked", "suspect", "dead")
_TURN = {"name": "gauges", "queue": "", "part": "reported-at"}


class StoreGauges:
    """Gauges read from the stores, cached briefly; exporters call this from their own threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.RLock()
        self._turn = Turn()
        self.forget()

    def forget(self) -> None:
        """Drop the cached gauges."""
        self._read: list[Gauge] = []
        self._reported: list[Gauge] = []
        self._read_until = self._reported_until = float("-inf")

    def read(self) -> list[Gauge]:
        """All gauges, at most READ_EVERY_SECONDS old."""
        with self._lock:
            if self._now() >= self._read_until:
                with _no_connection_left():
                    self._read = list(_all_gauges())
                self._read_until = self._now() + READ_EVERY_SECONDS
            return self._read

    def in_turn(self) -> list[Gauge]:
        """All gauges if it is this process's turn to report them, else none."""
        if "DJANGO_JOBS_CHILD" in os.environ:  # it may be killed at any moment
            return []
        with self._lock:
            if self._now() >= self._reported_until:
                self._reported = self._if_mine()
                self._reported_until = self._now() + READ_EVERY_SECONDS
            return self._reported

    def end(self) -> None:
        """Let another process take over at once. Raises what the database raises."""
        with self._lock:
            self._reported, self._reported_until = [], self._now() + TAKEN_OVER_AFTER_SECONDS
            self._turn.end()

    def _if_mine(self) -> list[Gauge]:
        try:
            with _no_connection_left():
                return self.read() if self._turn.is_mine() else []
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged
            # No gauge rather than a stale one, which would look like a queue that stands still.
            events.emit(events.GaugesUnreadable(error=error))
            return []


class Turn:
    """Lets one process report for all, until it has been silent for long.

    Series that moved from process to process would be shown twice for a while.
    """

    def __init__(self) -> None:
        self._reported_at = 0

    def is_mine(self) -> bool:
        """Whether this process reports; takes or keeps the turn if it can."""
        alias = jobs_database()
        now = store_now(alias)
        row = _row(alias)
        silent = row.filter(value__lt=now - to_microseconds(TAKEN_OVER_AFTER_SECONDS))
        # No other process knows the moment that this one wrote last.
        mine = row.filter(value=self._reported_at) if self._reported_at else row.none()
        if not (mine.update(value=now) or silent.update(value=now) or self._first(alias, now)):
            now = 0
        self._reported_at = now
        return bool(now)

    def end(self) -> None:
        """Leave the turn to the other processes."""
        if self._reported_at:
            _row(jobs_database()).filter(value=self._reported_at).update(value=0)
            self._reported_at = 0

    def _first(self, alias: str, now: int) -> bool:
        """Whether no process has ever reported, and this one is the first to claim the row."""
        row = _row(alias)
        if row.exists():
            return False
        Metric.objects.using(alias).bulk_create([Metric(**_TURN, value=0)], ignore_conflicts=True)
        return bool(row.filter(value=0).update(value=now))


def _row(alias: str) -> QuerySet[Metric]:
    return Metric.objects.using(alias).filter(**_TURN)


@contextmanager
def _no_connection_left() -> Iterator[None]:
    """Close new connections: they belong to a thread, and an exporter's would keep them open."""
    before = {connection.alias for connection in _open_connections()}
    try:
        yield
    finally:
        for connection in _open_connections():
            if connection.alias not in before:
                connection.close()


def _open_connections() -> list[BaseDatabaseWrapper]:
    return [
        connection
        for connection in connections.all(initialized_only=True)
        if connection.connection is not None
    ]


def _all_gauges() -> Iterator[Gauge]:
    for queue in overview(COUNTED_AT_MOST):
        if not queue.problem:  # a zero would be wrong
            yield from _queue_gauges(queue)
    for backend, count in seen_lately().items():
        yield Gauge("workers", count, {"backend": backend})


def _queue_gauges(queue: QueueOverview) -> Iterator[Gauge]:
    labels = {"backend": queue.backend, "queue": queue.queue}
    for state in STATES:
        yield Gauge("jobs", getattr(queue, state), {**labels, "state": state})
    yield Gauge("jobs_in_flight", queue.running, labels)
    yield Gauge("oldest_ready_seconds", queue.oldest_ready_seconds, labels)
    yield Gauge("queue_paused", int(queue.paused), labels)


store_gauges = StoreGauges()
"""Shared by all exporters and views of this process."""
