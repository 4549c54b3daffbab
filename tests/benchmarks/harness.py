"""A throw-away database, interleaved rounds, and a table of medians.

Machines are noisy. Contestants therefore take turns within every round, a figure is the
median of the rounds, and what is compared is the ratio to a limit of the same run.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 5


@dataclass
class Contest:
    """Contestants that do the same number of operations, in turns."""

    name: str
    operations: int
    contestants: dict[str, Callable[[int], None]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def run(self, rounds: int = ROUNDS) -> None:
        for _ in range(rounds):
            for label, work in self.contestants.items():
                wall, cpu = time.perf_counter(), time.process_time()
                work(self.operations)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                self.rates.setdefault(label, []).append(self.operations / wall)
                self.cpu.setdefault(label, []).append(cpu / self.operations * 1e6)

    def median(self, label: str) -> float:
        return statistics.median(self.rates[label])

    def ratio(self, label: str, limit: str) -> float:
        """The median of the rounds' ratios: both were measured within the same second."""
        pairs = zip(self.rates[label], self.rates[limit], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def print(self, limit: str) -> None:
        print(f"\n{self.name} ({self.operations:,} operations, {len(self.rates[limit])} rounds)")
        print(f"  {'':<52}{'per second':>14}{'ratio':>9}{'client CPU µs':>16}")
        for label in self.contestants:
            cpu = statistics.median(self.cpu[label])
            rate, ratio = self.median(label), self.ratio(label, limit)
            print(f"  {label:<52}{rate:>14,.0f}{ratio:>9.2f}{cpu:>16.1f}")


@contextmanager
def throwaway_database() -> Iterator[None]:
    """Django set up on an empty database of the chosen vendor."""
    os.environ.setdefault("DJANGO_JOBS_TEST_SUFFIX", f"bench{os.getpid()}")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    import django

    django.setup()
    from django.test.runner import DiscoverRunner

    runner = DiscoverRunner(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        yield
    finally:
        runner.teardown_databases(databases)


def print_conditions() -> None:
    """Where and on what the figures were taken."""
    from django.db import connection

    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, commit {_commit()}")
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for name in ("server_version", "fsync", "synchronous_commit", "wal_level"):
                cursor.execute(f"SHOW {name}")
                print(f"  {name} = {cursor.fetchone()[0]}")
        elif connection.vendor == "mysql":
            for name in ("version", "innodb_flush_log_at_trx_commit", "sync_binlog"):
                cursor.execute(f"SELECT @@{name}")
                print(f"  {name} = {cursor.fetchone()[0]}")
        else:
            for name in ("journal_mode", "synchronous"):
                cursor.execute(f"PRAGMA {name}")
                print(f"  {name} = {cursor.fetchone()[0]}")


def _commit() -> str:
    try:
        told = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip()


def write_json(path: str | None, figures: dict[str, Any]) -> None:
    """Keep figures for comparison where asked to."""
    if path:
        Path(path).write_text(json.dumps(figures, indent=2, sort_keys=True), encoding="utf-8")
        print(f"\nwritten to {path}", file=sys.stderr)
