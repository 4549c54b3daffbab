"""What every handler does, whoever calls it: append a record of itself to a file.

An append of this length is atomic, so that records of several processes never mix, and a job
that ran twice is there twice. It costs about two microseconds, for all contestants alike.
"""

from __future__ import annotations

import os
import struct
import time
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.surroundings import Surroundings

if TYPE_CHECKING:
    from pathlib import Path

RECORD = struct.Struct("<IQ")  # the job's number; nanoseconds of the clock all processes share


@cache
def _file() -> int:
    return os.open(Surroundings.here().marks, os.O_WRONLY | os.O_APPEND)


def mark(n: int) -> None:
    """Job ``n`` runs now."""
    os.write(_file(), RECORD.pack(n, time.monotonic_ns()))


class Marks:
    """The file, as the driver reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(b"")

    def count(self) -> int:
        return self.path.stat().st_size // RECORD.size

    def moments(self) -> dict[int, int]:
        """When each job ran first."""
        found: dict[int, int] = {}
        for n, moment in self._records():
            found.setdefault(n, moment)
        return found

    def in_order(self) -> list[int]:
        return sorted(moment for _, moment in self._records())

    def complaint(self, jobs: int) -> str:
        """Why this is not every job from 0 on, exactly once; empty if it is."""
        runs = Counter(n for n, _ in self._records())
        missing = [n for n in range(jobs) if n not in runs]
        twice = [n for n, times in runs.items() if times > 1]
        unknown = [n for n in runs if n >= jobs]
        told = {"never ran": missing, "ran more than once": twice, "nobody enqueued": unknown}
        return "; ".join(
            f"{len(numbers)} of {jobs} jobs {how}, such as {numbers[0]}"
            for how, numbers in told.items()
            if numbers
        )

    def _records(self) -> list[tuple[int, int]]:
        return list(RECORD.iter_unpack(self.path.read_bytes()))
