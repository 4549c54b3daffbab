"""What a handler prints, kept per attempt and capped.

``sys.stdout`` and ``sys.stderr`` are one per process, attempts may be many: a router in
their place asks a context variable whose output it is looking at.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from django_jobs.execution.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_OUTPUT = 64 * 1024


class Captured:
    """The output of one attempt, up to a limit; the rest is counted and dropped."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._size = 0
        self._dropped = 0

    def write(self, text: str) -> None:
        room = self._limit - self._size
        kept = text[:room] if room > 0 else ""
        if kept:
            self._parts.append(kept)
            self._size += len(kept)
        self._dropped += len(text) - len(kept)

    def text(self) -> str:
        said = printable("".join(self._parts))
        dropped = self._dropped + max(len(said) - self._limit, 0)
        if dropped:
            return f"{said[: self._limit]}\n… {dropped:,} more characters were not kept"
        return said


_current: ContextVar[Captured | None] = ContextVar("django_jobs_output", default=None)


class _Router:
    """Stands where a standard stream stood, and is that stream for everybody else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        captured = _current.get()
        if captured is None:
            return self._stream.write(text)
        captured.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_lock = threading.Lock()
_users = 0
_streams: tuple[TextIO, TextIO] | None = None


@contextmanager
def captured_output(limit: int = MAX_OUTPUT) -> Iterator[Captured]:
    """Keep what is printed inside the block by this thread or task."""
    captured = Captured(limit)
    _enter()
    token = _current.set(captured)
    try:
        yield captured
    finally:
        _current.reset(token)
        _leave()


def _enter() -> None:
    global _users, _streams  # noqa: PLW0603 - the streams are one per process, and so is their count
    with _lock:
        if _streams is None:
            _streams = sys.stdout, sys.stderr
            sys.stdout, sys.stderr = _Router(sys.stdout), _Router(sys.stderr)
        _users += 1


def _leave() -> None:
    global _users, _streams  # noqa: PLW0603 - as above
    with _lock:
        _users -= 1
        if _users == 0 and _streams is not None:
            # Whatever a handler put there and left there must not hurt the next one.
            sys.stdout, sys.stderr = _streams
            _streams = None
