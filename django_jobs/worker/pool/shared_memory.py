"""Shared memory in which children mark the jobs they begin; it outlives them.

A child has a lane for each job that it runs at once, and each lane has a slot. The child writes
the number of a job there before it starts it, and the moment by which the job has to end. The
parent takes back numbers that were not started by lowering a limit. Each side writes before it
reads, so that at least one of them sees the other.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import time
from dataclasses import dataclass

_STARTED, _LIMIT, _DEADLINE, _DONE, _RUNS, _BEGAN, _BEAT, _FENCE, _ASKED = range(9)
_WORDS = 9
_WORD_SIZE = 8
SLOT_SIZE = _WORDS * _WORD_SIZE
NO_LIMIT = (1 << 63) - 1
LEAST_ISOLATED = 4


@dataclass(frozen=True, slots=True)
class Places:
    """How many children a worker has, and how many lanes each of them.

    There are spare places: for replacements that are born before a child has left, and, where
    children run several jobs at once, for isolated children.
    """

    processes: int
    concurrency: int = 1
    cron: str = ""
    """The dotted path of the scheduler class to run in a process of its own, or empty. It is all
    that the worker knows of schedules; an object could not be passed to a new Python.
    """

    @property
    def lanes(self) -> int:
        """How many jobs may run at once."""
        return self.processes * self.concurrency

    @property
    def isolated(self) -> int:
        """How many additional children there may be for jobs that have to run alone."""
        return max(self.processes, LEAST_ISOLATED) if self.concurrency > 1 else 0

    @property
    def children(self) -> range:
        """The numbers of children, the spare places last."""
        return range(2 * self.processes + self.isolated)

    @property
    def signal_process(self) -> int:
        """The number of the process that sends signals. It has no lanes."""
        return self.children.stop

    @property
    def scheduler_process(self) -> int:
        """The number of the process that ticks for schedules. It has no lanes either."""
        return self.signal_process + 1

    @property
    def slots(self) -> int:
        return len(self.children) * self.concurrency

    def of_child(self, child: int) -> range:
        """The slots of a child, one for each of its lanes."""
        first = child * self.concurrency
        return range(first, first + self.concurrency)


def shared_memory(slots: int) -> int:
    """Create memory for so many lanes, and return its descriptor."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("django_jobs")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, slots * SLOT_SIZE)
    return descriptor


class Board:
    """All slots, mapped into this process."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self._memory = memoryview(mmap.mmap(descriptor, slots * SLOT_SIZE))

    def marks(self, slot: int) -> Marks:
        return Marks(self._memory[slot * SLOT_SIZE : (slot + 1) * SLOT_SIZE])


class Marks:
    """The slot of one lane. Words are written atomically, so none is read half-written."""

    def __init__(self, mine: memoryview) -> None:
        self._numbers = mine.cast("Q")
        self._moments = mine.cast("d")
        self._fence = threading.Lock()

    def reset(self) -> None:
        """Clear the slot for a new child."""
        for word in range(_WORDS):
            self._numbers[word] = 0
        self._numbers[_LIMIT] = NO_LIMIT

    def begin(self, number: int) -> bool:
        """Mark a job as started; False if it was taken back, or its lease may have ended."""
        self._moments[_DEADLINE] = 0.0
        self._moments[_BEGAN] = time.monotonic()
        self._numbers[_STARTED] = number
        with self._fence:  # a memory barrier: the mark is visible before the limit is read
            pass
        if number < self._numbers[_LIMIT] and not self._is_fenced():
            self._numbers[_RUNS] = number
            return True
        self._numbers[_STARTED] = number - 1
        return False

    def _is_fenced(self) -> bool:
        return 0.0 < self._moments[_FENCE] < time.monotonic()

    def hold_until(self, moment: float) -> None:
        """Let no job start after a moment on the monotonic clock.

        The parent moves it as leases are renewed. A frozen parent does not, and by then another
        worker may have the jobs.
        """
        self._moments[_FENCE] = moment

    def run_until(self, moment: float) -> None:
        """Set the deadline of the handler that starts now, on the monotonic clock; inf: none."""
        self._moments[_DEADLINE] = moment

    def done(self, number: int) -> None:
        """Mark a job as finished, before its outcome is sent."""
        self._moments[_DEADLINE] = 0.0
        self._numbers[_DONE] = number

    def beat(self, moment: float) -> None:
        """Show that the process is ready for jobs; repeated as its heartbeat."""
        self._moments[_BEAT] = moment

    def ask_to_stop(self, number: int) -> None:
        """Let the handler of a job see that it is asked to stop."""
        self._numbers[_ASKED] = number

    @property
    def is_asked(self) -> bool:
        """Whether the running job was asked to stop."""
        return 0 < self._numbers[_ASKED] == self._numbers[_RUNS]

    def take_back_from(self, number: int) -> int:
        """Let no job from this number on start; returns the last number that had started."""
        self._numbers[_LIMIT] = number
        with self._fence:
            pass
        return self._numbers[_STARTED]

    def allow_all(self) -> None:
        """Lift the limit."""
        self._numbers[_LIMIT] = NO_LIMIT

    @property
    def started(self) -> int:
        """The last number that was reached, even if it had been taken back."""
        return self._numbers[_STARTED]

    @property
    def ran(self) -> int:
        """The last number that really ran."""
        return self._numbers[_RUNS]

    @property
    def finished(self) -> int:
        return self._numbers[_DONE]

    @property
    def began_at(self) -> float:
        """When the last number was reached, on the monotonic clock; or 0."""
        return self._moments[_BEGAN]

    @property
    def beaten_at(self) -> float:
        """The time of the last heartbeat, or 0."""
        return self._moments[_BEAT]

    @property
    def deadline(self) -> float:
        """The moment by which the running job has to end; 0 while no handler runs."""
        return self._moments[_DEADLINE]
