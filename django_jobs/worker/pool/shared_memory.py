"""What children have begun, in memory that outlives them.

A child has a lane for each job that it runs at a time, and a lane has a slot. There the
number of each job is marked before it starts, and the moment by which it has to end. The
parent may take back numbers that were not started, by lowering a limit. Each side writes
first and looks second, so that at least one of them sees the other.
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

    There are spare places: for a child that is born before another has left, and, where
    children run several jobs at once, for those that run one alone.
    """

    processes: int
    concurrency: int = 1
    cron: str = ""
    """Where the scheduler is that a child of its own runs, if one is to: the dotted path of its
    class. The worker knows no more of schedules; a new Python cannot be handed an object.
    """

    @property
    def lanes(self) -> int:
        """How many jobs may run at once."""
        return self.processes * self.concurrency

    @property
    def isolated(self) -> int:
        """How many children beside the others may be there for jobs that have to run alone."""
        return max(self.processes, LEAST_ISOLATED) if self.concurrency > 1 else 0

    @property
    def children(self) -> range:
        """The numbers that children can have, those of the spare places last."""
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
    """The descriptor of a piece of memory for so many lanes."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("django_jobs")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, slots * SLOT_SIZE)
    return descriptor


class Board:
    """All the slots, as one process sees them."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self._memory = memoryview(mmap.mmap(descriptor, slots * SLOT_SIZE))

    def marks(self, slot: int) -> Marks:
        return Marks(self._memory[slot * SLOT_SIZE : (slot + 1) * SLOT_SIZE])


class Marks:
    """The slot of one lane. A word is written in one piece, so nobody reads half of one."""

    def __init__(self, mine: memoryview) -> None:
        self._numbers = mine.cast("Q")
        self._moments = mine.cast("d")
        self._fence = threading.Lock()

    def reset(self) -> None:
        """A new child begins to count."""
        for word in range(_WORDS):
            self._numbers[word] = 0
        self._numbers[_LIMIT] = NO_LIMIT

    def begin(self, number: int) -> bool:
        """Mark a job as started; False when it was taken back, or its lease is not sure."""
        self._moments[_DEADLINE] = 0.0
        self._moments[_BEGAN] = time.monotonic()
        self._numbers[_STARTED] = number
        with self._fence:  # no processor may look at the limit before the mark is seen
            pass
        if number < self._numbers[_LIMIT] and not self._is_fenced():
            self._numbers[_RUNS] = number
            return True
        self._numbers[_STARTED] = number - 1
        return False

    def _is_fenced(self) -> bool:
        return 0.0 < self._moments[_FENCE] < time.monotonic()

    def hold_until(self, moment: float) -> None:
        """Let no job start after a moment on the monotonic clock, also while nobody looks.

        The parent moves it as it renews. When it does not, it may be frozen, and the jobs
        may be another worker's by then.
        """
        self._moments[_FENCE] = moment

    def run_until(self, moment: float) -> None:
        """The handler starts now and has until a moment on the monotonic clock; inf: no end."""
        self._moments[_DEADLINE] = moment

    def done(self, number: int) -> None:
        """The job's outcome is on its way."""
        self._moments[_DEADLINE] = 0.0
        self._numbers[_DONE] = number

    def beat(self, moment: float) -> None:
        """Show that the process of this lane is ready for jobs, and, now and then, goes on."""
        self._moments[_BEAT] = moment

    def ask_to_stop(self, number: int) -> None:
        """Let the handler of a job see that somebody wants it to stop."""
        self._numbers[_ASKED] = number

    @property
    def is_asked(self) -> bool:
        """Whether what runs now was asked to stop."""
        return 0 < self._numbers[_ASKED] == self._numbers[_RUNS]

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
    def began_at(self) -> float:
        """When the last number was come to, on the monotonic clock, which nobody sets; or 0."""
        return self._moments[_BEGAN]

    @property
    def beaten_at(self) -> float:
        """When the process of this lane last went on, or 0."""
        return self._moments[_BEAT]

    @property
    def deadline(self) -> float:
        """The moment by which what runs has to end; 0 while no user code has been started."""
        return self._moments[_DEADLINE]
