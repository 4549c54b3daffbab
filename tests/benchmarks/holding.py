"""Jobs that come and go as fast as they can while an old transaction is open, second by second.

What it did not see vacuum cannot remove meanwhile: dead rows and dead index entries pile up,
and what reads past them slows down. Shown is the rate in steps, beside that of just before.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.benchmarks.labour.tally import VARIABLE, Tally
from tests.benchmarks.measuring import ROOT, empty, fill, rest, site_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_SECONDS = 5.0
STEPS_BEFORE = 3
MOST_RECOVERY_SECONDS = 120.0
RECOVERED = 0.9
BACKLOG = 20_000
FILLED_AT_ONCE = 2_000
MOST_PER_SECOND = 40_000
POLL_SECONDS = 0.02


class Stream:
    """Keeps enough waiting for a worker that drains, and counts what it ran."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._enqueued = 0
        self.least_waiting = BACKLOG

    def step(self, seconds: float) -> float:
        """The jobs that ran per second, during so many seconds."""
        began, before = time.monotonic(), self._tally.ran()
        while time.monotonic() - began < seconds:
            self.feed()
        return (self._tally.ran() - before) / (time.monotonic() - began)

    def feed(self) -> None:
        waiting = self._enqueued - self._tally.ran()
        self.least_waiting = min(self.least_waiting, waiting)
        if waiting >= BACKLOG:
            time.sleep(POLL_SECONDS)
            return
        fill(FILLED_AT_ONCE, self._enqueued)
        self._enqueued += FILLED_AT_ONCE

    def begin(self) -> None:
        """Let there be work, and see that it is being done."""
        while self._enqueued < BACKLOG:
            self.feed()
        while not self._tally.ran():
            time.sleep(POLL_SECONDS)
        self.least_waiting = BACKLOG


def held(seconds: float, settings: dict[str, Any]) -> dict[str, float]:
    """A steady drain, an old transaction beside it for so long, and the time after it."""
    from tests.benchmarks.bare import connected

    longest = (STEPS_BEFORE + 2) * STEP_SECONDS + seconds + MOST_RECOVERY_SECONDS
    empty()
    rest()
    with tempfile.TemporaryDirectory() as folder:
        tally = Tally.create(f"{folder}/tally", int(longest * MOST_PER_SECOND))
        with _worker(settings, f"{folder}/tally"):
            stream = Stream(tally)
            stream.begin()
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
    while (left := seconds - (time.monotonic() - began)) > 0:
        found = stream.step(min(STEP_SECONDS, left))
        ratios.append(found / before)
        _show(f"open for {time.monotonic() - began:4.0f} s", found, before)
    return ratios


def _recovery(stream: Stream, before: float) -> float:
    """Seconds from the end of the transaction to the end of the first step that is fast again."""
    ended = time.monotonic()
    for _ in itertools.count():
        found = stream.step(STEP_SECONDS)
        took = time.monotonic() - ended
        _show(f"over for {took:4.0f} s", found, before)
        if found >= RECOVERED * before:
            print(f"  back at {RECOVERED:g} of it within {took:.0f} s")
            return took
        if took > MOST_RECOVERY_SECONDS:
            print(f"  not back at {RECOVERED:g} of it after {took:.0f} s")
            break
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
