"""Database connections between attempts: what one handler broke must not hurt the next."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections, reset_queries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper


@contextmanager
def clean_connections() -> Iterator[None]:
    """Fresh or healthy connections at the start, and no transaction left behind at the end.

    A connection with a transaction open at the start belongs to somebody else (a test
    case, ``atomic=True``) and is left alone.
    """
    reset_queries()
    foreign = set()
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            foreign.add(connection.alias)
        else:
            connection.close_if_unusable_or_obsolete()
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.alias not in foreign:
                _tidy(connection)


def _tidy(connection: BaseDatabaseWrapper) -> None:
    if connection.connection is None and not connection.in_atomic_block:
        return
    if connection.in_atomic_block or not connection.get_autocommit():
        # A transaction the handler left open is rolled back with its connection.
        connection.close()
        connection.connect()
    else:
        connection.close_if_unusable_or_obsolete()
