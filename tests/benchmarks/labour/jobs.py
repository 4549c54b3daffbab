"""What the benchmarks run."""

from __future__ import annotations

import time

from django_jobs import job
from tests.benchmarks.labour import tally


@job(key="benchmark.mark")
def mark(number: int) -> None:
    """Nothing, but for the mark that shows it ran."""
    tally.mark(number)


@job(key="benchmark.nap")
def nap(number: int, seconds: float) -> None:
    """A handler that takes its time without using the processor."""
    time.sleep(seconds)
    tally.mark(number)
