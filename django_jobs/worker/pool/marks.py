"""What a child has begun, in memory that outlives it.

A child marks the number of each job before it starts it, and the moment by which it has
to end. The parent may take back numbers that were not started, by lowering a limit. Each
side writes first and looks second, so that at least one of them sees the other.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading

_STARTED, _LIMIT, _DEADLINE, _DONE, _RUNS, _BEGAN = range(6)
_WORDS = 8
_WORD_SIZE = 8
SLOT_SIZE = _WORDS * _WORD_SIZE
NO_LIMIT = (1 << 63) - 1


def shared_memory(slots: int) -> int:
    """The descriptor of a piece of memory for so many children."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("django_jobs")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, slots * SLOT_SIZE)
    return descriptor


class Marks:
    """The slot of one child. A word is written in one piece, so nobody reads half of one."""

    def __init__(self, descriptor: int, slot: int) -> None:
        memory = memoryview(mmap.mmap(descriptor, (slot + 1) * SLOT_SIZE))
        mine = memory[slot * SLOT_SIZE :]
        self._numbers = mine.cast("Q")
        self._moments = mine.cast("d")
        self._fence = threading.Lock()

    def reset(self) -> None:
        """A new child begins to count."""
        for word in range(_WORDS):
            self._numbers[word] = 0
        self._numbers[_LIMIT] = NO_LIMIT

    def begin(self, number: int, now: int = 0) -> bool:
        """Mark a job as started; False when it was taken back."""
        self._moments[_DEADLINE] = 0.0
        self._numbers[_BEGAN] = now
        self._numbers[_STARTED] = number
        with self._fence:  # no processor may look at the limit before the mark is seen
            pass
        if number < self._numbers[_LIMIT]:
            self._numbers[_RUNS] = number
            return True
        self._numbers[_STARTED] = number - 1
        return False

    def run_until(self, moment: float) -> None:
        """The handler starts now and has until a moment on the monotonic clock; 0: no end."""
        self._moments[_DEADLINE] = moment

    def done(self, number: int) -> None:
        """The job's outcome is on its way."""
        self._moments[_DEADLINE] = 0.0
        self._numbers[_DONE] = number

    def take_back_from(self, number: int) -> int:
        """Let no job from this number on start; the last that was started all the same."""
        self._numbers[_LIMIT] = number
        with self._fence:
            pass
        return self._numbers[_STARTED]

    def allow_all(self) -> None:
        """Lift the limit."""
        self._numbers[_LIMIT] = NO_LIMIT

    @property
    def started(self) -> int:
        """The last number that was come to, be it that it had been taken back."""
        return self._numbers[_STARTED]

    @property
    def ran(self) -> int:
        """The last number that was really run."""
        return self._numbers[_RUNS]

    @property
    def finished(self) -> int:
        return self._numbers[_DONE]

    @property
    def began_at(self) -> int:
        """When the last number was come to, in microseconds of this machine's clock."""
        return self._numbers[_BEGAN]

    @property
    def deadline(self) -> float:
        return self._moments[_DEADLINE]
