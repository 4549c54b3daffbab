"""A worker's row in the table of workers: who serves what, and when it was last seen."""

from __future__ import annotations

import os
import socket
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from django.db import Error, connections

from django_jobs.backends.database.backend import DatabaseBackend
from django_jobs.backends.database.rows import for_people
from django_jobs.clock import to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.home import clock_of
from django_jobs.models import Worker
from django_jobs.routers import job_databases
from django_jobs.telemetry.events import WorkerUnseen, emit

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Backend

DRAINING = "an operator asked it to drain"
SEEN_EVERY_SECONDS = 5.0
IDLE_FACTOR = 2  # who has nothing to do is to cost nearly nothing
FORGOTTEN_AFTER_SECONDS = 3600.0


class Presence:
    """Tells the jobs' database that this worker is there.

    That of a broker tells the database in which operators look, and goes on without it.
    ``draining``: whether somebody has written there that it is to end.
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
        self._database = None if backend.ends_with_process else _database_of(backend)
        self._queues = queues
        self._processes = processes
        self._concurrency = concurrency
        self._running = running
        self._id = uuid.uuid4()
        self._told_at = float("-inf")

    def tell(self) -> None:
        """Register, or refresh when it is time to."""
        if self._database is None or time.monotonic() < self._told_at + self._pause():
            return
        try:
            self._tell(self._database)
        except Error as error:
            if isinstance(self._backend, DatabaseBackend):
                raise
            emit(WorkerUnseen(backend=self._backend.alias, error=error))
            connections[self._database].close_if_unusable_or_obsolete()
        self._told_at = time.monotonic()

    def _pause(self) -> float:
        return SEEN_EVERY_SECONDS * (1 if self._running() else IDLE_FACTOR)

    def _tell(self, alias: str) -> None:
        backend = self._backend
        clock = backend.clock if isinstance(backend, DatabaseBackend) else clock_of(alias)
        workers = Worker.objects.using(alias)
        mine = workers.filter(pk=self._id)
        # One round trip, as long as nobody asked it to drain.
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
            # Those that were killed could not take their rows along.
            workers.filter(seen__lt=now - to_microseconds(FORGOTTEN_AFTER_SECONDS)).delete()

    def end(self) -> None:
        """Remove the row. Should the store not answer, it is forgotten in time."""
        if self._database is not None:
            with suppress(Error):
                Worker.objects.using(self._database).filter(pk=self._id).delete()


def _database_of(backend: Backend) -> str:
    if isinstance(backend, DatabaseBackend):
        return backend.database
    return job_databases(get_settings())[0]
