"""What a tick costs among many schedules of which few are due.

    python -m tests.benchmarks.ticks            10,000 schedules, on DJANGO_JOBS_TEST_DB
    python -m tests.benchmarks.ticks 1000       as many as that
    python -m tests.benchmarks.ticks 1000 1000  as many as that, all of them due each minute

Prints the first tick, which writes a row for each schedule, that of a process that begins
anew, later ones, and what a list of all costs; all in a test database that is dropped at the
end.
"""

from __future__ import annotations

import os
import sys
import time

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
django.setup()

from django.conf import settings  # noqa: E402 - as above
from django.test.utils import get_runner  # noqa: E402 - needs the apps

from django_jobs.backends.database.clock import StoreClock  # noqa: E402 - as above
from django_jobs.backends.registry import backends  # noqa: E402 - as above
from django_jobs.clock import ManualClock  # noqa: E402 - as above
from django_jobs.cron.registry import register_source  # noqa: E402 - as above
from django_jobs.cron.schedule import Schedule  # noqa: E402 - as above
from django_jobs.cron.ticking import Ticker  # noqa: E402 - as above
from django_jobs.definition import JobDefinition, Options  # noqa: E402 - as above
from django_jobs.operations.schedules import overview_of_schedules  # noqa: E402 - as above

DUE = 10
START = 1_935_698_430_000_000


def main(count: int, due: int = DUE) -> None:
    runner = get_runner(settings)(verbosity=0, interactive=False)
    databases = runner.setup_databases(aliases={"default"})
    try:
        measure(count, due)
    finally:
        runner.teardown_databases(databases)


def measure(count: int, due: int) -> None:
    job = JobDefinition(
        "testproject.shop.jobs.doomed", {"args": [], "kwargs": {}}, Options(queue="bench")
    )
    schedules = [
        Schedule(
            name=f"schedule-{number}",
            expression="* * * * *" if number < due else f"{number % 60} 4 {number % 28 + 1} 1 *",
            job=job,
        )
        for number in range(count)
    ]
    register_source(lambda: schedules)
    clock = ManualClock(START)
    backends["database"].clock = StoreClock(clock)  # type: ignore[attr-defined] # the database one
    ticker = Ticker()
    tell("first tick", ticker)
    clock.advance(60)
    tell("tick of a new process", Ticker())
    for _ in range(5):
        clock.advance(60)
        tell("later tick", ticker)
    began = time.perf_counter()
    listed = overview_of_schedules()
    print(f"{'list':<24}{time.perf_counter() - began:8.3f} s  {len(listed)} schedules")
    print(f"{count} schedules, {due} due at each tick")


def tell(what: str, ticker: Ticker) -> None:
    began = time.perf_counter()
    count = len(ticker.tick())
    while ticker.is_behind:
        count += len(ticker.tick())
    print(f"{what:<24}{time.perf_counter() - began:8.3f} s  {count} decided")


main(*map(int, sys.argv[1:] or ("10000",)))
