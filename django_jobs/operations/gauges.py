"""How queues and workers stand, for collectors and for the view: read once for all who ask."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.backends.home import jobs_database, store_now
from django_jobs.clock import to_microseconds
from django_jobs.models import Figure
from django_jobs.operations.health import seen_lately
from django_jobs.operations.overview import QueueOverview, overview
from django_jobs.telemetry.errors import cleaned
from django_jobs.telemetry.metrics import Gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet


logger = logging.getLogger("django_jobs")

READ_EVERY_SECONDS = 5.0
TAKEN_OVER_AFTER_SECONDS = 150.0
"""Longer than twice the minute after which exporters usually tell again."""
COUNTED_AT_MOST = 20_000
"""Of each queue and state: a tenth of a second or so among ten million jobs on MariaDB."""
STATES = ("ready", "scheduled", "running", "blocked", "suspect", "dead")
_TURN = {"name": "gauges", "queue": "", "part": "told-at"}


class StoreGauges:
    """What the stores say, remembered for a moment; exporters ask from threads of their own."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.RLock()
        self._turn = Turn()
        self.forget()

    def forget(self) -> None:
        """Ask anew whatever is asked next."""
        self._read: list[Gauge] = []
        self._told: list[Gauge] = []
        self._read_until = self._told_until = float("-inf")

    def read(self) -> list[Gauge]:
        """How things stand, as of READ_EVERY_SECONDS ago at most."""
        with self._lock:
            if self._now() >= self._read_until:
                with _no_connection_left():
                    self._read = list(_all_gauges())
                self._read_until = self._now() + READ_EVERY_SECONDS
            return self._read

    def in_turn(self) -> list[Gauge]:
        """The same where it is this process's turn to tell, else nothing."""
        if "DJANGO_JOBS_CHILD" in os.environ:  # it may be killed at any moment
            return []
        with self._lock:
            if self._now() >= self._told_until:
                self._told = self._if_mine()
                self._told_until = self._now() + READ_EVERY_SECONDS
            return self._told

    def end(self) -> None:
        """Let another process take over at once. Raises what the database raises."""
        with self._lock:
            self._told, self._told_until = [], self._now() + TAKEN_OVER_AFTER_SECONDS
            self._turn.end()

    def _if_mine(self) -> list[Gauge]:
        try:
            with _no_connection_left():
                return self.read() if self._turn.is_mine() else []
        except Exception as error:
            # Nothing rather than an old number, which would look like a queue that stands still.
            told = "how the queues stand is not known"
            logger.exception(told, extra={"key": "metrics.failed"}, exc_info=cleaned(error))
            return []


class Turn:
    """One process tells for all. It stays the one until it has been silent for long, as series
    that wander from process to process would be shown twice for a while.
    """

    def __init__(self) -> None:
        self._told_at = 0

    def is_mine(self) -> bool:
        """Whether it is this process, from now on too."""
        alias = jobs_database()
        now = store_now(alias)
        row = _row(alias)
        silent = row.filter(value__lt=now - to_microseconds(TAKEN_OVER_AFTER_SECONDS))
        # What it wrote last is known to nobody else.
        mine = row.filter(value=self._told_at) if self._told_at else row.none()
        if not (mine.update(value=now) or silent.update(value=now) or self._first(alias, now)):
            now = 0
        self._told_at = now
        return bool(now)

    def end(self) -> None:
        """Leave it to the others."""
        if self._told_at:
            _row(jobs_database()).filter(value=self._told_at).update(value=0)
            self._told_at = 0

    def _first(self, alias: str, now: int) -> bool:
        """Whether nobody has ever told, and this process is the first of those that saw it."""
        row = _row(alias)
        if row.exists():
            return False
        Figure.objects.using(alias).bulk_create([Figure(**_TURN, value=0)], ignore_conflicts=True)
        return bool(row.filter(value=0).update(value=now))


def _row(alias: str) -> QuerySet[Figure]:
    return Figure.objects.using(alias).filter(**_TURN)


@contextmanager
def _no_connection_left() -> Iterator[None]:
    """Connections belong to a thread, and an exporter's would keep them until it ends."""
    had = {one.alias for one in _open_connections()}
    try:
        yield
    finally:
        for one in _open_connections():
            if one.alias not in had:
                one.close()


def _open_connections() -> list[BaseDatabaseWrapper]:
    return [one for one in connections.all(initialized_only=True) if one.connection is not None]


def _all_gauges() -> Iterator[Gauge]:
    for queue in overview(COUNTED_AT_MOST):
        if not queue.problem:  # zero would be a lie
            yield from _of_queue(queue)
    for backend, count in seen_lately().items():
        yield Gauge("workers", count, {"backend": backend})


def _of_queue(queue: QueueOverview) -> Iterator[Gauge]:
    here = {"backend": queue.backend, "queue": queue.queue}
    for state in STATES:
        yield Gauge("jobs", getattr(queue, state), {**here, "state": state})
    yield Gauge("jobs_in_flight", queue.running, here)
    yield Gauge("oldest_ready_seconds", queue.oldest_ready_seconds, here)
    yield Gauge("queue_paused", int(queue.paused), here)


store_gauges = StoreGauges()
"""The one of this process."""
