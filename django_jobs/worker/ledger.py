"""What this worker has counted goes to where the figures of all workers are, now and then."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from django.db import Error

from django_jobs.operations.figures import add as add_counters
from django_jobs.operations.gauges import gauges
from django_jobs.telemetry.collectors import Prometheus
from django_jobs.telemetry.metrics import of_kind

if TYPE_CHECKING:
    from django_jobs.backends.base import Backend

EVERY_SECONDS = 10.0


class Ledger:
    """Nothing, unless ``METRICS`` names the collector for Prometheus."""

    def __init__(self, backend: Backend) -> None:
        self._database: str | None = getattr(backend, "database", None)
        self._told_at = time.monotonic()

    def tell(self) -> None:
        """Add what was counted, when it is time to."""
        if time.monotonic() >= self._told_at + EVERY_SECONDS:
            self._told_at = time.monotonic()
            # Whose jobs are elsewhere goes on without a database, and tells it later.
            with suppress(Error) if self._database is None else nullcontext():
                self._add()

    def end(self) -> None:
        """Add what is left. Should the store not answer, those seconds are lost."""
        with suppress(Error, OSError):
            self._add()
            gauges.end()

    def _add(self) -> None:
        for collector in of_kind(Prometheus):
            if taken := collector.take():
                try:
                    add_counters(taken, self._database)
                except BaseException:
                    collector.give_back(taken)
                    raise
