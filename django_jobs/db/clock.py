"""The store's clock: the only place from which transitions take the current time.

Leases, delays and due times use the database's clock in whole microseconds, from one
expression per vendor that depends neither on ``USE_TZ`` nor on the session's time zone.
Tests set a clock of their own here, and so move time on a real store.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models import BigIntegerField, Func
from django.utils import timezone

from django_jobs.clock import to_datetime, within_years

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    from django_jobs.clock import Clock

_EXPRESSIONS = {
    # Advances within a transaction, so that a long one does not enqueue in the past, and is
    # constant within a statement, so that an index can be searched for due jobs.
    "postgresql": "(extract(epoch from statement_timestamp()) * 1000000)::bigint",
    # In UTC throughout: UNIX_TIMESTAMP() would repeat an hour in autumn.
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
}


class StoreClock:
    """The store's current time, as SQL, as a number or in a queryset."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock

    @property
    def is_set_by_hand(self) -> bool:
        """Whether a test sets it: then nothing can be extrapolated from an earlier reading."""
        return self._clock is not None

    def sql(self, vendor: str) -> str:
        """An SQL expression without parameters for the current time."""
        if self._clock is not None:
            return str(int(self._clock.now()))
        # SQLite has no clock of its own: it runs in this process.
        return _EXPRESSIONS.get(vendor) or str(time.time_ns() // 1000)

    def read(self, connection: BaseDatabaseWrapper) -> int:
        """The current time as a number."""
        if self._clock is not None or connection.vendor not in _EXPRESSIONS:
            return int(self.sql(connection.vendor))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {self.sql(connection.vendor)}")
            (now,) = cursor.fetchone()
        return int(now)

    def now(self) -> StoreNow:
        """The current time as a query expression."""
        return StoreNow(self)


class StoreNow(Func):
    """The store's current time inside a queryset."""

    output_field = BigIntegerField()

    def __init__(self, clock: StoreClock) -> None:
        super().__init__()
        self.clock = clock

    def as_sql(
        self,
        compiler: SQLCompiler,
        connection: BaseDatabaseWrapper,
        *_args: Any,
        **_extra: Any,
    ) -> tuple[str, tuple[str | int, ...]]:
        del compiler
        return self.clock.sql(connection.vendor), ()


def maybe_for_people(microseconds: int | None) -> datetime | None:
    """As ``for_people``, for a moment that may be None."""
    return None if microseconds is None else for_people(microseconds)


def for_people(microseconds: int) -> datetime:
    """A moment as a value for a DateTimeField of this site: naive if USE_TZ is off."""
    moment = to_datetime(within_years(microseconds))
    if not settings.USE_TZ:
        return timezone.make_naive(moment)
    return moment
