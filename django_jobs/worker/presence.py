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
from django_jobs.models import Worker

if TYPE_CHECKING:
    from django_jobs.backends.base import Backend

SEEN_EVERY_SECONDS = 10.0
FORGOTTEN_AFTER_SECONDS = 3600.0


class Presence:
    """Tells the store that this worker is there; nothing where the store has no such table."""

    def __init__(
        self, backend: Backend, queues: str, processes: int = 0, concurrency: int = 1
    ) -> None:
        self._backend = backend if isinstance(backend, DatabaseBackend) else None
        self._queues = queues
        self._processes = processes
        self._concurrency = concurrency
        self._id = uuid.uuid4()
        self._told_at = float("-inf")

    def tell(self) -> None:
        """Register, or refresh when it is time to."""
        if self._backend is None or time.monotonic() < self._told_at + SEEN_EVERY_SECONDS:
            return
        alias, clock = self._backend.database, self._backend.clock
        workers = Worker.objects.using(alias)
        if not workers.filter(pk=self._id).update(seen=clock.now()):
            now = clock.read(connections[alias])
            workers.create(
                id=self._id,
                backend=self._backend.alias,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=self._queues,
                processes=self._processes,
                concurrency=self._concurrency,
                started_at=for_people(now),
                seen=now,
            )
            # Those that were killed could not take their rows along.
            workers.filter(seen__lt=now - to_microseconds(FORGOTTEN_AFTER_SECONDS)).delete()
        self._told_at = time.monotonic()

    def end(self) -> None:
        """Remove the row. Should the store not answer, it is forgotten in time."""
        if self._backend is not None:
            with suppress(Error):
                Worker.objects.using(self._backend.database).filter(pk=self._id).delete()
