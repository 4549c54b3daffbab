"""The contract of an adapter: what a contestant is, how it is fed, how its workers start."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from testproject.databases import server_details

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.benchmarks.rivals.surroundings import Surroundings

POSTGRES, SQLITE, REDIS = "PostgreSQL", "SQLite", "Redis"
DEFAULTS, ONE, MACHINE = "defaults", "one process", "whole machine"
CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Way:
    """One way to run a contestant's workers."""

    name: str
    workers: tuple[tuple[str, ...], ...]  # what follows ``python -m``, for each process to start
    told: str  # the settings, as the table names them
    pace: int  # jobs per second to expect, so that a drain takes about as long for everybody
    reconnects: bool = False  # connections come and go, and their processor time with them


class Site:
    """A contestant, with a database of its own."""

    name: ClassVar[str]
    vendor: ClassVar[str]
    distribution: ClassVar[str]  # whose version is told
    keeps: ClassVar[str]  # what it keeps or gives up for its speed
    left: ClassVar[str]  # SQL, or a script of Redis: how many jobs are not finished
    ways: ClassVar[tuple[Way, ...]]
    bulk: ClassVar[bool] = True
    together: ClassVar[int] = 1_000_000  # how many jobs one call of ``many`` is given

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings

    # What follows runs in the contestant's producer.

    def start(self) -> None:
        """Import what is to be measured and connect."""

    def prepare(self) -> None:
        """Create the tables."""

    def one(self, n: int) -> None:
        """Enqueue one job, committed when this returns."""
        raise NotImplementedError

    def each(self, numbers: Iterable[int]) -> None:
        """Enqueue jobs one by one, each in a transaction of its own."""
        for n in numbers:
            self.one(n)

    def many(self, numbers: list[int]) -> None:
        """Enqueue jobs in bulk."""
        raise NotImplementedError

    def feed(self, numbers: range) -> None:
        """Enqueue jobs where that is not what is measured: as fast as its library can."""
        if self.bulk:
            self.many(list(numbers))
        else:
            self.each(numbers)


def file_beside(address: str, name: str) -> dict[str, Any]:
    """The SQLite file of a site whose jobs are at an address of Redis."""
    path = Path(tempfile.gettempdir()) / f"rivals-redis-{name}-{urlsplit(address).port}.sqlite3"
    options = {"transaction_mode": "IMMEDIATE", "timeout": 20}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": options}


class DjangoSite(Site):
    """A contestant that is an app of a Django site."""

    apps: ClassVar[tuple[str, ...]]

    def settings(self) -> dict[str, Any]:
        """The site's settings; ``extra`` adds the contestant's own."""
        return {
            "SECRET_KEY": "only-for-a-benchmark-and-never-for-a-real-site",
            "INSTALLED_APPS": list(self.apps),
            "DATABASES": {"default": self._database()},
            "DEFAULT_AUTO_FIELD": "django.db.models.BigAutoField",
            "USE_TZ": True,
            "TIME_ZONE": "UTC",
            **self.extra(),
        }

    def extra(self) -> dict[str, Any]:
        return {}

    @property
    def tuned(self) -> bool:
        """Everything but the defaults is tuned; so is the producer."""
        return self.surroundings.way != DEFAULTS

    def _database(self) -> dict[str, Any]:
        # Django's own default closes a connection whenever it is asked whether to.
        kept = None if self.tuned else 0
        if self.vendor == SQLITE:
            return {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": self.surroundings.database,
                "CONN_MAX_AGE": kept,
                "OPTIONS": {
                    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
                    "transaction_mode": "IMMEDIATE",
                    "timeout": 20,
                },
            }
        return {
            "ENGINE": "django.db.backends.postgresql",
            **server_details("postgres"),
            "NAME": self.surroundings.database,
            "CONN_MAX_AGE": kept,
        }

    def start(self) -> None:
        import django

        django.setup()

    def feed(self, numbers: range) -> None:
        from django.db import transaction

        with transaction.atomic():  # spares those without a bulk call a commit for each job
            super().feed(numbers)

    def prepare(self) -> None:
        from django.core.management import call_command

        call_command("migrate", verbosity=0, interactive=False)
