"""Jobs that come and go as fast as they can while an old transaction is open, second by second.

What it did not see vacuum cannot remove meanwhile: dead rows and dead index entries pile up,
and what reads past them slows down. Shown is the rate in steps, beside that of just before.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.benchmarks.labour.tally import VARIABLE, Tally
from tests.benchmarks.measuring import ROOT, empty, fill, rest, site_environment
from tests.benchmarks.stream import POLL_SECONDS, RECOVERED, Stream, recovered

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_SECONDS = 5.0
STEPS_BEFORE = 3
MOST_RECOVERY_SECONDS = 120.0
MOST_PER_SECOND = 40_000


def held(seconds: float, settings: dict[str, Any]) -> dict[str, float]:
    """A steady drain, an old transaction beside it for so long, and the time after it."""
    from tests.benchmarks.bare import connected

    longest = (STEPS_BEFORE + 2) * STEP_SECONDS + seconds + MOST_RECOVERY_SECONDS
    empty()
    rest()
    with tempfile.TemporaryDirectory() as folder:
        tally = Tally.create(f"{folder}/tally", int(longest * MOST_PER_SECOND))
        with _worker(settings, f"{folder}/tally"):
            stream = Stream(tally.ran, fill, step_seconds=STEP_SECONDS)
            stream.fill_up()
            while not tally.ran():
                time.sleep(POLL_SECONDS)
            stream.step(STEP_SECONDS)  # until it has found its pace
            before = sum(stream.step(STEP_SECONDS) for _ in range(STEPS_BEFORE)) / STEPS_BEFORE
            print(f"\nEnqueueing and draining with an old transaction open for {seconds:g} s")
            print(f"  before it        {before:>10,.0f} per second")
            with connected() as reader:
                reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                reader.execute("SELECT count(*) FROM django_jobs_job")
                curve = _curve(stream, before, seconds)
                reader.execute("ROLLBACK")
            took = _recovery(stream, before)
    print(f"  least that waited at a look: {stream.least_waiting:,} jobs")
    return {"held: last step": curve[-1], "held: least": min(curve), "held: recovery": took}


def _curve(stream: Stream, before: float, seconds: float) -> list[float]:
    ratios: list[float] = []
    began = time.monotonic()
    for found in stream.steps(seconds):
        ratios.append(found / before)
        _show(f"open for {time.monotonic() - began:4.0f} s", found, before)
    return ratios


def _recovery(stream: Stream, before: float) -> float:
    """Seconds from the end of the transaction to the end of the first step that is fast again."""
    ended = time.monotonic()
    took = 0.0
    for found in stream.recovery(before, MOST_RECOVERY_SECONDS):
        took = time.monotonic() - ended
        _show(f"over for {took:4.0f} s", found, before)
        if recovered(found, before):
            print(f"  back at {RECOVERED:g} of it within {took:.0f} s")
            return took
    print(f"  not back at {RECOVERED:g} of it after {took:.0f} s")
    return float("inf")


def _show(when: str, found: float, before: float) -> None:
    print(f"  {when:<16} {found:>10,.0f} per second, {found / before:.2f} of it", flush=True)


@contextmanager
def _worker(settings: dict[str, Any], tally: str) -> Iterator[None]:
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [sys.executable, "testproject/manage.py", "jobs_work", "-v0"],
            cwd=ROOT,
            env={**site_environment(settings), VARIABLE: tally},
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
        )
        try:
            yield
        finally:
            process.terminate()
            ended = process.wait()
        told.seek(0)
        assert ended == 0, told.read().decode()
