"""Counts per queue and minute: workers add to them, and delete old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import F, Value
from django.db.models.functions import Greatest, Least

from django_jobs.clock import SECOND
from django_jobs.db.transactions import in_transition
from django_jobs.models import QueueMinute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.db.clock import StoreClock

MINUTE = 60 * SECOND
KEPT_MINUTES = 8 * 24 * 60
_SWEPT_EVERY_MINUTES = 60
_FULL = 2**62


def add_counts(
    alias: str, clock: StoreClock, backend: str, counts: Mapping[str, Mapping[str, int]]
) -> None:
    """Add counts, by queue and column, to the current minute on the store's clock."""

    def work(connection: BaseDatabaseWrapper) -> None:
        minute = clock.read(connection) // MINUTE
        # In order, so that two workers do not deadlock.
        for queue in sorted(counts):
            _add(alias, backend, queue, minute, counts[queue])

    in_transition(alias, work)


def plus(column: str, count: int) -> Any:
    """A count plus ``count``. A value that was set to its limit by hand stays in range."""
    return Greatest(Least(F(column), Value(_FULL)), Value(-_FULL)) + count


def _add(alias: str, backend: str, queue: str, minute: int, counts: Mapping[str, int]) -> None:
    minutes = QueueMinute.objects.using(alias)
    mine = minutes.filter(backend=backend, queue=queue)
    more = {name: plus(name, count) for name, count in counts.items()}
    if mine.filter(minute=minute).update(**more):
        return
    new = QueueMinute(backend=backend, queue=queue, minute=minute)
    minutes.bulk_create([new], ignore_conflicts=True)
    mine.filter(minute=minute).update(**more)
    if minute % _SWEPT_EVERY_MINUTES == 0:
        mine.filter(minute__lt=minute - KEPT_MINUTES).delete()
