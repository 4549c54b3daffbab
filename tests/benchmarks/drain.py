"""How fast a worker drains its queues, beside a bare psycopg loop in the same run.

DJANGO_JOBS_TEST_DB=postgres python -m tests.benchmarks.drain --help
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import TYPE_CHECKING, Any

from tests.benchmarks.distance import away
from tests.benchmarks.harness import print_conditions, throwaway_database, write_json
from tests.benchmarks.holding import held
from tests.benchmarks.measuring import (
    SETTINGS,
    TENTHS,
    Figures,
    empty,
    fill,
    fill_naps,
    fill_with_keys,
    measured,
    ours,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT: dict[str, Any] = {}
NOT_KEPT = {"RESULT_TTL": 0}


def contest(contestants: dict[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """Every contestant once a round, in turns."""
    figures: dict[str, list[Figures]] = {label: [] for label in contestants}
    for _ in range(rounds):
        for label, run in contestants.items():
            figures[label].append(run())
    return figures


def show(figures: dict[str, list[Figures]], limit: str | None) -> dict[str, float]:
    """Print a table of medians; ratios are those within a round."""
    print(f"  {'':<34}{'per second':>12}{'ratio':>8}{'worker µs':>11}{'server µs':>11}{'both':>8}")
    kept: dict[str, float] = {}
    for label, runs in figures.items():
        rate = median(run.per_second for run in runs)
        worker, server = (median(getattr(run, name) for run in runs) for name in CPU)
        ratio = float("nan")
        if limit is not None:
            pairs = zip(runs, figures[limit], strict=True)
            ratio = median(mine.per_second / other.per_second for mine, other in pairs)
        both = worker + server
        print(f"  {label:<34}{rate:>12,.0f}{ratio:>8.2f}{worker:>11.1f}{server:>11.1f}{both:>8.1f}")
        kept |= {f"{label}: per second": rate, f"{label}: ratio": ratio, f"{label}: cpu": both}
    return kept


CPU = ("worker_cpu", "server_cpu")


def median(values: Any) -> float:
    return statistics.median(values)


def draining(jobs: int, rounds: int) -> dict[str, float]:
    """Results on and off, one child and two."""
    from django.db import connection

    from tests.benchmarks.bare import bare

    contestants: dict[str, Callable[[], Figures]] = {}
    limit = "bare psycopg, claim 100, ack at once"
    if connection.vendor == "postgresql":
        contestants[limit] = lambda: bare(jobs)
    for told, settings in (("results kept", KEPT), ("no results", NOT_KEPT)):
        for processes in (1, 2):
            label = f"{told}, {processes} " + ("child" if processes == 1 else "children")
            contestants[label] = lambda s=settings, p=processes: ours(s, jobs, processes=p)
    print(f"\nDraining {jobs:,} no-op jobs ({rounds} rounds)")
    return show(contest(contestants, rounds), limit if limit in contestants else None)


def growing(sizes: list[int], jobs: int, rounds: int) -> dict[str, float]:
    """The rate at which the first jobs go, by how many wait."""
    print(f"\nDraining at most {jobs:,} jobs of so many that wait ({rounds} rounds)")
    contestants = {
        f"{size:,} waiting": lambda size=size: ours(KEPT, min(size, jobs), waiting=size)
        for size in sizes
    }
    return show(contest(contestants, rounds), None)


def napping(jobs: int, seconds: float = 0.1, children: int = 2) -> dict[str, float]:
    """Handlers that sleep: how near to the ideal rate it comes."""
    figures = ours(KEPT, jobs, processes=children, enqueue=lambda count: fill_naps(count, seconds))
    took = (jobs - 1) / figures.per_second + seconds
    ideal = jobs / children * seconds
    print(f"\n{jobs} handlers of {seconds * 1e3:.0f} ms on {children} children")
    print(f"  {jobs / took:.2f} per second, {ideal / took:.3f} of the ideal rate")
    return {"naps: of the ideal rate": ideal / took}


def keyed(jobs: int, rounds: int) -> dict[str, float]:
    """Jobs with a key each beside jobs without, the nearer and the farther the database is."""
    found: dict[str, float] = {}
    for milliseconds in (0, 1, 4):
        print(f"\nDraining {jobs:,} no-op jobs, {milliseconds} ms from the database")
        ends = f"{milliseconds} ms"
        contestants: dict[str, Callable[[], Figures]] = {
            f"no key, {ends}": lambda: ours(KEPT, jobs),
            f"an idempotency key each, {ends}": lambda: ours(KEPT, jobs, enqueue=fill_with_keys),
        }
        with away(milliseconds):
            found |= show(contest(contestants, rounds), f"no key, {ends}")
    return found


def held_open(jobs: int) -> dict[str, float]:
    """A drain while an old transaction is open, and one just after it."""
    from tests.benchmarks.bare import connected

    few = jobs // TENTHS
    before = ours(KEPT, few)
    empty()
    with connected() as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM django_jobs_job")
        fill(jobs)
        during = measured(KEPT, jobs, jobs, None, ["--until-empty"])
        reader.execute("ROLLBACK")
    with connected() as keeper:
        keeper.execute("DELETE FROM django_jobs_jobresult")
    ended = time.monotonic()
    fill(few)
    after = measured(KEPT, few, few, None, ["--until-empty"])
    print(f"\nDraining {jobs:,} jobs while an old transaction is open")
    print(f"  before it          {before.per_second:>10,.0f} per second")
    for tenth, found in enumerate(during.curve, start=1):
        ratio = found / before.per_second
        print(f"  after {tenth * few:>12,} {found:>10,.0f} per second, {ratio:.2f} of it")
    told = time.monotonic() - ended
    ratio = after.per_second / before.per_second
    print(f"  {told:.0f} s after its end {after.per_second:>8,.0f} per second, {ratio:.2f} of it")
    return {"old transaction: last tenth": during.curve[-1] / before.per_second}


CONTESTS: dict[str, Any] = {
    "drain": lambda o: draining(o.jobs, o.rounds),
    "growth": lambda o: growing([1_000, 10_000, 100_000, 1_000_000], 10_000, o.rounds),
    "naps": lambda _: napping(200),
    "keys": lambda o: keyed(min(o.jobs, 5_000), o.rounds),
    "old": lambda o: held(o.hold, KEPT) if o.hold else held_open(10 * o.jobs),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contests", nargs="*", help=f"of {', '.join(CONTESTS)}; default: drain")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--hold",
        type=float,
        metavar="SECONDS",
        help="keep the old transaction open for so long beside a steady drain; implies old",
    )
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    figures: dict[str, float] = {}
    with throwaway_database():
        print_conditions()
        for name in options.contests or ["old" if options.hold else "drain"]:
            figures |= CONTESTS[name](options)
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
