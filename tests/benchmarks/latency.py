"""How long an idle worker takes to begin a job: from the return of enqueue() to the handler.

DJANGO_JOBS_TEST_DB=postgres python -m tests.benchmarks.latency
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import print_conditions, throwaway_database, write_json
from tests.benchmarks.workers import PATIENCE_SECONDS, Relay, worker

SAMPLES = 600
CLAIMS = 50
PAUSES = (0.05, 0.15)
QUANTILES = (0.5, 0.95, 0.99, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--settings", type=json.loads, default={}, help="DJANGO_JOBS as JSON")
    parser.add_argument("--worker", default="", help="options for jobs_work")
    options = parser.parse_args()
    with throwaway_database():
        print_conditions()
        claims = claim_seconds()
        with worker(*options.worker.split(), settings=options.settings) as working:
            before = working.cpu_seconds()
            samples = sampled(options.samples)
            cpu = (working.cpu_seconds() - before) / len(samples)
        figures = told("an idle worker begins a job", samples, cpu)
        figures["claim_p50_ms"] = statistics.median(claims + claim_seconds()) * 1e3
        print(f"  a claim alone, p50 before and after: {figures['claim_p50_ms']:.2f} ms")
        write_json(options.json, figures)


def claim_seconds() -> list[float]:
    """What a claim takes in this process: on a busy machine, the yardstick for the rest."""
    from django_jobs.backends.registry import backends
    from django_jobs.testing.factories import make_outgoing

    backend, taken = backends["database"], []
    for _ in range(CLAIMS):
        backend.enqueue([make_outgoing("claims-alone", backend="database")])
        began = time.perf_counter()
        leases = backend.fetch(["claims-alone"], 1, 30.0)
        taken.append(time.perf_counter() - began)
        backend.ack(leases)
    return taken


def sampled(count: int, relay: Relay | None = None) -> list[float]:
    """Enqueue one job after the other, with pauses, and say how long each waited."""
    from tests.benchmarks.jobs import stamp

    chance = random.Random(1)
    with tempfile.NamedTemporaryFile("r") as file:
        time.sleep(1)  # the worker has just come up, and is to be idle
        enqueued = []
        for number in range(count):
            stamp.enqueue(file.name, number)
            enqueued.append(time.time())
            time.sleep(chance.uniform(*PAUSES))
        path = Path(file.name)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(lines := path.read_text().splitlines()) < count:
            assert time.monotonic() < deadline, f"{len(lines)} of {count} jobs ran"
            time.sleep(0.05)
        began = {int(number): float(at) for number, at in map(str.split, lines)}
    return [began[number] - at for number, at in enumerate(enqueued)]


def told(name: str, samples: list[float], cpu: float) -> dict[str, Any]:
    """Print quantiles in milliseconds."""
    ranked = sorted(samples)
    figures: dict[str, Any] = {
        f"p{share * 100:g}_ms": ranked[min(int(len(ranked) * share), len(ranked) - 1)] * 1e3
        for share in QUANTILES
    }
    print(f"\n{name} ({len(samples)} samples)")
    for quantile, value in figures.items():
        print(f"  {quantile:<8}{value:9.2f}")
    print(f"  worker CPU per job {cpu * 1e3:.2f} ms, of all its processes")
    return {**figures, "worker_cpu_ms": cpu * 1e3}


if __name__ == "__main__":
    main()
