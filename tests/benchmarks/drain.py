"""How fast a worker drains its queues, beside a bare psycopg loop in the same run.

DJANGO_JOBS_TEST_DB=postgres python -m tests.benchmarks.drain --help
"""

from __future__ import annotations

import argparse
import os
import statistics
from typing import TYPE_CHECKING, Any

from tests.benchmarks.harness import print_conditions, throwaway_database, write_json
from tests.benchmarks.measuring import SETTINGS, Figures, ours

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    with throwaway_database():
        print_conditions()
        write_json(options.json, draining(options.jobs, options.rounds))


if __name__ == "__main__":
    main()
