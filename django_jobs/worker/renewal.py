"""Renews the lease of a running handler from another thread.

For the worker that runs everything in one process. A handler that never releases the interpreter
stops this thread too; with child processes the parent renews instead.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.backends.base import Cancels, works_from_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.backends.base import Backend, Lease

RENEWALS_PER_LEASE = 3
ASK_SECONDS = 1.0


class Renewer:
    """Renews leases of one backend while a block runs, and notes requests to stop their jobs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._asked: set[str] = set()

    def is_asked(self, lease: Lease) -> bool:
        """Whether the job of a lease was asked to stop."""
        return lease.token in self._asked

    @contextmanager
    def holding(self, lease: Lease, lease_seconds: float) -> Iterator[None]:
        """Renew a lease until the block ends."""
        if not (self._backend.capabilities.renew and works_from_threads(self._backend)):
            yield
            return
        done = threading.Event()
        thread = threading.Thread(
            target=self._renew, args=(lease, lease_seconds, done), name="django_jobs-renewal"
        )
        thread.daemon = True
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._asked.discard(lease.token)

    def _renew(self, lease: Lease, lease_seconds: float, done: threading.Event) -> None:
        pause = lease_seconds / RENEWALS_PER_LEASE
        renew_at = time.monotonic() + pause
        try:
            while not done.wait(min(pause, ASK_SECONDS)):
                try:
                    if time.monotonic() >= renew_at:
                        self._backend.renew([lease], lease_seconds)
                        renew_at = time.monotonic() + pause
                    if isinstance(self._backend, Cancels) and self._backend.asked_to_stop([lease]):
                        self._asked.add(lease.token)
                except Exception:  # noqa: BLE001 - tried again next time; the settle notices a loss
                    connections.close_all()
        finally:
            connections.close_all()
