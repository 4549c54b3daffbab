"""Throw-away databases, one for each contestant, and what their server costs."""

from __future__ import annotations

import math
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from testproject.databases import server_details
from tests.benchmarks.rivals.processes import reaped_by, seconds_of, stat_of
from tests.benchmarks.rivals.site import POSTGRES, REDIS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

# Emptying these would break the site, and no queue writes to them.
SCHEMA_TABLES = re.compile(r"django_migrations|django_content_type|auth_\w+|sqlite_\w+")


class Store(ABC):
    """An empty database; ``name`` is what a process needs to find it."""

    name: str
    postmaster: int | None = None  # None: there is no server
    alone: bool = False  # nobody else uses the server meanwhile, and one process is all of it

    @abstractmethod
    def _connected(self) -> AbstractContextManager[Any]:
        """A connection of the driver's own, closed afterwards."""

    def ask(self, sql: str) -> int:
        """The number that a query gives."""
        with self.asking(sql) as number:
            return number()

    @contextmanager
    def asking(self, sql: str) -> Iterator[Callable[[], int]]:
        """The same, again and again."""
        with self._connected() as connection:
            yield lambda: int(connection.execute(sql).fetchone()[0])

    @abstractmethod
    def empty(self) -> None:
        """No job, no result, nothing that an earlier run left."""

    @abstractmethod
    def rest(self) -> None:
        """What the server would do sooner or later: statistics, and writing what filled it."""

    def backends(self) -> set[int]:
        """The server's processes that serve this database."""
        return set()


class Price:
    """Processor time of the server's processes for one database, since this was made.

    Of connections that ended meanwhile the postmaster knows the sum, for all databases: with
    ``reaped`` that is counted too, and right only while nobody else uses the server.
    """

    def __init__(self, store: Store, others: set[int], *, reaped: bool) -> None:
        self._store, self._others, self._reaped = store, others, reaped
        self._began = self._now()

    def seconds(self) -> float:
        return self._now() - self._began

    def _now(self) -> float:
        if self._store.postmaster is None:
            return 0.0
        if not stat_of(self._store.postmaster):
            return math.nan  # the server is on another machine
        if self._store.alone:
            return seconds_of(self._store.postmaster)
        ended = reaped_by(self._store.postmaster) if self._reaped else 0.0
        return sum(map(seconds_of, self._store.backends() - self._others)) + ended


class PostgresStore(Store):
    """A database on the server that the environment names."""

    def __init__(self, label: str) -> None:
        self.name = _prefix() + re.sub(r"\W", "_", label)
        self._server = _connect("postgres")
        own = stat_of(self._server.info.backend_pid)
        self.postmaster = int(own[0]) if own else -1
        self._server.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
        self._server.execute(f"CREATE DATABASE {self.name}")

    def _connected(self) -> AbstractContextManager[Any]:
        return closing(_connect(self.name))

    def empty(self) -> None:
        with self._connected() as connection:
            found = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            ).fetchall()
            names = [name for (name,) in found if not SCHEMA_TABLES.fullmatch(name)]
            if names:
                connection.execute(f"TRUNCATE {', '.join(names)} RESTART IDENTITY CASCADE")

    def rest(self) -> None:
        with self._connected() as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    @contextmanager
    def old_transaction(self) -> Iterator[None]:
        """Open meanwhile, so that nothing it may still see can be removed from this database."""
        with self._connected() as reader:
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM pg_class")  # takes the snapshot
            yield
            reader.execute("ROLLBACK")

    def backends(self) -> set[int]:
        found = self._server.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s", [self.name]
        )
        return {pid for (pid,) in found.fetchall()}


class SqliteStore(Store):
    """A file, in a folder that is removed by whoever made it."""

    def __init__(self, folder: Path, label: str) -> None:
        self.name = str(folder / f"{re.sub(r'[^a-z0-9]', '_', label)}.sqlite3")

    def _connected(self) -> AbstractContextManager[Any]:
        return closing(sqlite3.connect(self.name, isolation_level=None, timeout=20))

    def empty(self) -> None:
        with self._connected() as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (name,) in found.fetchall():
                if not SCHEMA_TABLES.fullmatch(name):
                    connection.execute(f"DELETE FROM {name}")
            connection.execute("VACUUM")

    def rest(self) -> None:
        with self._connected() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def store_for(vendor: str, folder: Path, label: str) -> Store:
    """An empty database for a contestant, there until ``sweep``."""
    if vendor == REDIS:
        from tests.benchmarks.rivals.redis_server import RedisStore

        return RedisStore(folder, label)
    return PostgresStore(label) if vendor == POSTGRES else SqliteStore(folder, label)


def sweep() -> None:
    """No database of this run is left, whoever is still connected."""
    with closing(_connect("postgres")) as server:
        found = server.execute("SELECT datname FROM pg_database").fetchall()
        for (name,) in found:
            if name.startswith(_prefix()):
                server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _prefix() -> str:
    run = os.environ.get("DJANGO_JOBS_TEST_SUFFIX") or os.getpid()
    return re.sub(r"\W", "_", f"test_rivals_{run}__")


def _connect(database: str) -> Any:
    import psycopg

    server = server_details("postgres")
    return psycopg.connect(
        host=server["HOST"],
        port=server["PORT"],
        user=server["USER"],
        password=server["PASSWORD"],
        dbname=database,
        autocommit=True,
    )
