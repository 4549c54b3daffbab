"""What a worker costs that has nothing to do: CPU of all its processes, and round trips.

DJANGO_JOBS_TEST_DB=postgres python -m tests.benchmarks.idle
"""

from __future__ import annotations

import argparse
import json
import os
import time

from testproject.databases import server_details
from tests.benchmarks.harness import print_conditions, throwaway_database, write_json
from tests.benchmarks.workers import Relay, worker

SECONDS = 60.0
SETTLING_SECONDS = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--settings", type=json.loads, default={}, help="DJANGO_JOBS as JSON")
    parser.add_argument("--worker", default="", help="options for jobs_work")
    options = parser.parse_args()
    with throwaway_database():
        print_conditions()
        figures = idle_figures(options.seconds, options.worker.split(), options.settings)
        write_json(options.json, figures)


def idle_figures(
    seconds: float, options: list[str], settings: dict[str, object]
) -> dict[str, float]:
    """Let a worker be idle for a while, and print what it used."""
    choice = os.environ.get("DJANGO_JOBS_TEST_DB") or "sqlite"
    relay = None
    if choice != "sqlite":
        server = server_details(choice)
        relay = Relay(server["HOST"], int(server["PORT"]))
    with worker(*options, settings=settings, relay=relay) as working:
        time.sleep(SETTLING_SECONDS)
        processes = len(working.family())
        cpu, trips = working.cpu_seconds(), relay.round_trips if relay else 0
        time.sleep(seconds)
        cpu = (working.cpu_seconds() - cpu) / seconds
        trips = (relay.round_trips if relay else 0) - trips
    print(f"\nan idle worker ({processes} processes, {seconds:g} s)")
    print(f"  CPU            {cpu * 100:8.3f} % of a core")
    figures = {"idle_cpu_share": cpu}
    if relay is not None:
        print(f"  round trips    {trips / seconds:8.2f} per second")
        print(f"  connections    {relay.connections:8d} made in all")
        figures["idle_round_trips_per_second"] = trips / seconds
        relay.close()
    return figures


if __name__ == "__main__":
    main()
