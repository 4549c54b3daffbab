"""Job ids: UUID version 7, increasing within a process; and the names of processes."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from uuid import UUID

_lock = threading.Lock()
_last = 0

# Read randomness from the system for many ids at a time.
_POOL_BYTES = 4096
_RANDOM_BYTES = 8
_pool = b""
_used = 0

# 60 bits of time: 48 of milliseconds, and the 12 below them that version 7 leaves to the
# implementation, used here for the fraction of the millisecond and as a counter.
_TICKS_PER_MILLISECOND = 1 << 12

VERSION = 7
_CANONICAL = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def new_id() -> str:
    """A new id, greater than all ids that this process made before."""
    global _last, _pool, _used  # noqa: PLW0603 - one sequence per process is the point
    ticks = time.time_ns() * _TICKS_PER_MILLISECOND // 1_000_000
    with _lock:
        # Also keeps ids rising while the clock stands still or is set back.
        _last = ticks = max(ticks, _last + 1)
        if _used + _RANDOM_BYTES > len(_pool):
            _pool, _used = os.urandom(_POOL_BYTES), 0
        random = _pool[_used : _used + _RANDOM_BYTES]
        _used += _RANDOM_BYTES
    head = f"{ticks >> 12:012x}"
    tail = random.hex()
    variant = "89ab"[random[0] >> 6]
    return f"{head[:8]}-{head[8:]}-7{ticks & 0xFFF:03x}-{variant}{tail[1:4]}-{tail[4:]}"


def parse_id(text: object) -> str | None:
    """The canonical spelling of an id, or None if it is not an id."""
    if not isinstance(text, str | UUID):
        return None
    try:
        return str(UUID(str(text)))
    except ValueError:
        return None


def made_at(job_id: UUID) -> int | None:
    """When an id was made, in microseconds of its maker's clock; None for other versions."""
    return (job_id.int >> 80) * 1000 if job_id.version == VERSION else None


def is_canonical(text: object) -> bool:
    """Whether this is an id in its canonical spelling."""
    return isinstance(text, str) and _CANONICAL.fullmatch(text) is not None


def process_name() -> str:
    """The name of this process: host and pid."""
    return f"{socket.gethostname()[:96]}:{os.getpid()}"


def _begin_anew() -> None:
    """Reset the state in a forked child.

    It must not use the random numbers of its parent, nor wait for a lock held by a thread that
    does not exist in the child.
    """
    global _lock, _pool, _used
    _lock, _pool, _used = threading.Lock(), b"", 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
