"""The database that operations use, its clock, and the record of what operators did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections

from django_jobs.backends.base import SharesTransactions
from django_jobs.backends.registry import backends
from django_jobs.clock import to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.clock import StoreClock, for_people
from django_jobs.models import OperatorEvent
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta


def jobs_database() -> str:
    """The alias of the database that operations read and write by default."""
    return job_databases(get_settings())[0]


def clock_of(alias: str) -> StoreClock:
    """The clock used for the jobs in a database."""
    for config in get_settings().backends.values():
        if database_of(config) == alias:
            backend = backends[config.alias]
            if isinstance(backend, SharesTransactions):
                return backend.clock
    return StoreClock()


def store_now(alias: str) -> int:
    """The current time on a database's clock, in microseconds."""
    return clock_of(alias).read(connections[alias])


def moments() -> dict[str, int]:
    """The current time of each database that holds jobs. Read it once for a page."""
    return {alias: store_now(alias) for alias in job_databases(get_settings())}


def moment_before(alias: str, age: timedelta) -> datetime:
    """The moment before which something is older than ``age``, on a database's clock."""
    return for_people(store_now(alias) - to_microseconds(age))


def record(
    alias: str,
    action: str,
    *,
    by: str,
    reason: str = "",
    backend: str = "",
    queue: str = "",
    subject: str = "",
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Record an action of an operator, in the caller's transaction."""
    OperatorEvent.objects.using(alias).create(
        at=for_people(store_now(alias)),
        actor=by[:150],
        action=action,
        backend=backend,
        queue=queue,
        subject=subject[:255],
        reason=reason,
        detail=None if detail is None else dict(detail),
    )
