"""Job ids: UUID version 7, increasing within a process."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_lock = threading.Lock()
_last = 0

# 60 bits of time: 48 of milliseconds, and the 12 below them that version 7 leaves to the
# implementation, used here for the fraction of the millisecond and as a counter.
_TICKS_PER_MILLISECOND = 1 << 12


def new_id() -> str:
    """A fresh id, greater than every id this process made before."""
    global _last  # noqa: PLW0603 - one sequence per process is the point
    ticks = time.time_ns() * _TICKS_PER_MILLISECOND // 1_000_000
    with _lock:
        # Also keeps ids rising while the clock stands still or is set back.
        _last = ticks = max(ticks, _last + 1)
    stamp = ticks >> 12
    head = f"{stamp:012x}"
    random = os.urandom(8)
    tail = random.hex()
    variant = "89ab"[random[0] >> 6]
    return f"{head[:8]}-{head[8:]}-7{ticks & 0xFFF:03x}-{variant}{tail[1:4]}-{tail[4:]}"


def parse_id(text: object) -> str | None:
    """The canonical spelling of an id, or None when it is none."""
    if not isinstance(text, str | UUID):
        return None
    try:
        return str(UUID(str(text)))
    except ValueError:
        return None
