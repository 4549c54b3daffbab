"""What a tick costs among many schedules of which few are due.

    DJANGO_JOBS_TEST_DB=postgres python -m tests.benchmarks.ticks
    python -m tests.benchmarks.ticks --due 1000     as many of them due each minute

Measures the first tick, which writes a row for each schedule, that of a process that begins
anew, later ones, and what a list of all costs: among all of them and among a tenth.
"""

from __future__ import annotations

import argparse
import statistics
import time

from tests.benchmarks.harness import print_conditions, throwaway_database, write_json

COUNT, DUE, LATER = 10_000, 10, 20
START = 1_935_698_430_000_000
MINUTE = 60
ROWS = ("first tick", "tick of a new process", "later tick, median", "later tick, slowest", "list")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--count", type=int, default=COUNT, help="how many schedules")
    parser.add_argument("--due", type=int, default=DUE, help="how many of them at each tick")
    options = parser.parse_args()
    with throwaway_database():
        print_conditions()
        few, many = (measured(count, options.due) for count in (options.count // 10, options.count))
    print(f"\n{'schedules':<24}{options.count // 10:>10,}{options.count:>10,}{'ratio':>9}")
    for row in ROWS:
        print(f"{row:<24}{few[row]:>9.3f}s{many[row]:>9.3f}s{many[row] / few[row]:>9.2f}")
    print(f"{options.due} due at each tick, {LATER} later ticks")
    write_json(options.json, {"few": few, "many": many})


def measured(count: int, due: int) -> dict[str, float]:
    """The seconds of each kind of tick among so many schedules, on empty tables."""
    from django_jobs.backends.registry import backends
    from django_jobs.clock import ManualClock
    from django_jobs.cron.registry import registry
    from django_jobs.cron.tick import Ticker
    from django_jobs.db.clock import StoreClock
    from django_jobs.models import Job, ScheduleState, ScheduleTick
    from django_jobs.operations.schedules import overview_of_schedules

    for table in (Job, ScheduleState, ScheduleTick):
        table.objects.all().delete()
    found = schedules(count, due)
    registry._sources[:] = [lambda: found]
    clock = ManualClock(START)
    backends["database"].clock = StoreClock(clock)  # type: ignore[attr-defined] # the database one
    ticker = Ticker()
    first = seconds_of(ticker, due)
    clock.advance(MINUTE)
    anew = seconds_of(Ticker(), due)
    later = []
    for _ in range(LATER):
        clock.advance(MINUTE)
        later.append(seconds_of(ticker, due))
    began = time.perf_counter()
    assert len(overview_of_schedules()) == count
    listed = time.perf_counter() - began
    figures = (first, anew, statistics.median(later), max(later), listed)
    return dict(zip(ROWS, figures, strict=True))


def schedules(count: int, due: int) -> list:
    from django_jobs.cron.schedule import Schedule
    from django_jobs.definition import JobDefinition, Options

    payload = {"args": [], "kwargs": {}}
    job = JobDefinition("testproject.shop.jobs.doomed", payload, Options(queue="bench"))
    rare = "{} 4 {} 1 *"
    return [
        Schedule(
            name=f"schedule-{number}",
            expression="* * * * *" if number < due else rare.format(number % 60, number % 28 + 1),
            job=job,
        )
        for number in range(count)
    ]


def seconds_of(ticker, due: int) -> float:
    began = time.perf_counter()
    count = len(ticker.tick())
    while ticker.is_behind:
        count += len(ticker.tick())
    lasted = time.perf_counter() - began
    assert count == due
    return lasted


if __name__ == "__main__":
    main()
