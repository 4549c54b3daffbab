"""What a child has begun, in memory that outlives it.

A child marks the number of each job before it starts it, and the moment by which it has
to end. The parent may take back numbers that were not started, by lowering a limit. Each
side writes first and looks second, so that at least one of them sees the other.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

_NUMBER = struct.Struct("<Q")
_MOMENT = struct.Struct("<d")
_STARTED, _LIMIT, _DEADLINE, _DONE = 0, 8, 16, 24
SLOT_SIZE = 64
NO_LIMIT = (1 << 63) - 1


def shared_memory(slots: int) -> int:
    """The descriptor of a piece of memory for so many children."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("django_jobs")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, slots * SLOT_SIZE)
    os.set_inheritable(descriptor, True)
    return descriptor


class Marks:
    """The slot of one child."""

    def __init__(self, descriptor: int, slot: int) -> None:
        self._memory = mmap.mmap(descriptor, (slot + 1) * SLOT_SIZE)
        self._base = slot * SLOT_SIZE

    def reset(self) -> None:
        """A new child begins to count."""
        self._memory[self._base : self._base + SLOT_SIZE] = bytes(SLOT_SIZE)
        self._put(_NUMBER, _LIMIT, NO_LIMIT)

    def begin(self, number: int) -> bool:
        """Mark a job as started; False when it was taken back."""
        self._put(_MOMENT, _DEADLINE, 0.0)
        self._put(_NUMBER, _STARTED, number)
        if number < self._get(_NUMBER, _LIMIT):
            return True
        self._put(_NUMBER, _STARTED, number - 1)
        return False

    def run_until(self, moment: float) -> None:
        """The handler starts now and has until a moment on the monotonic clock; 0: no end."""
        self._put(_MOMENT, _DEADLINE, moment)

    def done(self, number: int) -> None:
        """The job's outcome is on its way."""
        self._put(_MOMENT, _DEADLINE, 0.0)
        self._put(_NUMBER, _DONE, number)

    def take_back_from(self, number: int) -> int:
        """Let no job from this number on start; the last that was started all the same."""
        self._put(_NUMBER, _LIMIT, number)
        return int(self._get(_NUMBER, _STARTED))

    def allow_all(self) -> None:
        """Lift the limit."""
        self._put(_NUMBER, _LIMIT, NO_LIMIT)

    @property
    def started(self) -> int:
        return int(self._get(_NUMBER, _STARTED))

    @property
    def finished(self) -> int:
        return int(self._get(_NUMBER, _DONE))

    @property
    def deadline(self) -> float:
        return float(self._get(_MOMENT, _DEADLINE))

    def _put(self, kind: struct.Struct, offset: int, value: float) -> None:
        kind.pack_into(self._memory, self._base + offset, value)

    def _get(self, kind: struct.Struct, offset: int) -> float:
        value: float = kind.unpack_from(self._memory, self._base + offset)[0]
        return value
