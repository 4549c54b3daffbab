"""The store's clock: the one seam through which every transition takes its "now".

Leases, delays and due dates are judged by the database's clock, in whole microseconds
from one expression per vendor that depends neither on ``USE_TZ`` nor on the session's
time zone. Tests put a clock of their own here and so move time on a real store.
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
    # Moves on inside a transaction, so that a long one does not enqueue in its past, and
    # stands still in a statement, so that an index can be searched for what is due.
    "postgresql": "(extract(epoch from statement_timestamp()) * 1000000)::bigint",
    # Reckoned in UTC throughout: UNIX_TIMESTAMP() would repeat an hour in autumn.
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
}


class StoreClock:
    """Says "now" in SQL."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock

    @property
    def is_set_by_hand(self) -> bool:
        """Whether it leaps, as a test wants it to: nothing can be reckoned on from it."""
        return self._clock is not None

    def sql(self, vendor: str) -> str:
        """An expression without parameters for the store's now."""
        if self._clock is not None:
            return str(int(self._clock.now()))
        # SQLite has no clock but that of the process it runs in.
        return _EXPRESSIONS.get(vendor) or str(time.time_ns() // 1000)

    def read(self, connection: BaseDatabaseWrapper) -> int:
        """The store's now as a number."""
        if self._clock is not None or connection.vendor not in _EXPRESSIONS:
            return int(self.sql(connection.vendor))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {self.sql(connection.vendor)}")
            (now,) = cursor.fetchone()
        return int(now)

    def now(self) -> StoreNow:
        """The store's now as a query expression."""
        return StoreNow(self)


class StoreNow(Func):
    """The store's now inside a queryset."""

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
    """The same, for a moment that may be unknown."""
    return None if microseconds is None else for_people(microseconds)


def for_people(microseconds: int) -> datetime:
    """A moment as a DateTimeField of this site wants it: naive where USE_TZ is off."""
    moment = to_datetime(within_years(microseconds))
    if not settings.USE_TZ:
        return timezone.make_naive(moment)
    return moment
