"""huey with its own consumer, on PostgreSQL and on SQLite."""

from __future__ import annotations

from tests.benchmarks.rivals.site import CORES, DEFAULTS, MACHINE, ONE, POSTGRES, SQLITE, Site, Way

WORKER = ("huey.bin.huey_consumer", "tests.benchmarks.rivals.handlers.huey.huey")
QUIET = (*WORKER, "--quiet")
PROCESSES = (*QUIET, "--worker-type", "process", "--workers", str(CORES))


class HueySite(Site):
    """On PostgreSQL."""

    name = "huey"
    vendor = POSTGRES
    distribution = "huey"
    keeps = "at most once: a task is deleted before it runs, killed work is lost; pickle"
    left = "SELECT count(*) FROM huey_task"
    bulk = False
    ways = (
        Way(DEFAULTS, (WORKER,), "one thread, a line of log per task", 1_500),
        Way(ONE, (QUIET,), "one thread, quiet", 2_500),
        Way(MACHINE, (PROCESSES,), f"{CORES} processes, quiet", 3_500),
    )

    def start(self) -> None:
        from tests.benchmarks.rivals.handlers import huey  # creates the tables

        self.noop, self.storage = huey.noop, huey.huey.storage

    def feed(self, numbers: range) -> None:
        # It has no bulk call, and commits each task: at least that commit need not wait here.
        self.storage.conn.execute("SET synchronous_commit = off")
        super().feed(numbers)
        self.storage.conn.execute("RESET synchronous_commit")

    def one(self, n: int) -> None:
        self.noop(n=n)


class HueySqliteSite(HueySite):
    """On SQLite: WAL and synchronous FULL are its defaults."""

    vendor = SQLITE
    feed = Site.feed  # there is nothing like it to be set
    left = "SELECT count(*) FROM task"
    ways = (
        Way(DEFAULTS, (WORKER,), "one thread, a line of log per task", 3_000),
        Way(ONE, (QUIET,), "one thread, quiet", 5_000),
        Way(MACHINE, (PROCESSES,), f"{CORES} processes, quiet", 4_000),
    )
