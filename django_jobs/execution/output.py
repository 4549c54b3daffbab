"""What a handler prints, kept per attempt and capped.

A process has one ``sys.stdout`` and ``sys.stderr``, and may run many attempts: a router in their
place looks up the current attempt in a context variable.
"""

from __future__ import annotations

import os
import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TextIO

from django_jobs.redaction import scrubbed
from django_jobs.texts import printable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

MAX_OUTPUT = 64 * 1024


class Captured:
    """The output of one attempt, up to a limit; the rest is counted and dropped.

    As a context manager it keeps what this thread or task prints. The first such block installs
    the routers.
    """

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._size = 0
        self._dropped = 0

    def __enter__(self) -> Self:
        _streams.enter()
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        _streams.leave()

    def write(self, text: str) -> None:
        room = self._limit - self._size
        kept = text[:room] if room > 0 else ""
        if kept:
            self._parts.append(kept)
            self._size += len(kept)
        self._dropped += len(text) - len(kept)

    def text(self) -> str:
        if not self._parts and not self._dropped:
            return ""
        text = scrubbed(printable("".join(self._parts)))
        dropped = self._dropped + max(len(text) - self._limit, 0)
        if dropped:
            return f"{text[: self._limit]}\n… {dropped:,} more characters were not kept"
        return text


_current: ContextVar[Captured | None] = ContextVar("django_jobs_output", default=None)


class _Router:
    """Replaces a standard stream, and passes on all output that is not captured."""

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


def captured_output(limit: int = MAX_OUTPUT) -> AbstractContextManager[Captured]:
    """Keep what is printed inside the block by this thread or task."""
    return Captured(limit)


def keep_routers() -> None:
    """Leave the routers in place from now on, in a process that does nothing but run jobs."""
    _streams.keep()


class _Streams:
    """Installs the routers in place of the standard streams while any block needs them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # One item for each block, in any thread: append and pop need no lock.
        self._inside: list[None] = []
        self._kept = False
        self._real: tuple[TextIO, TextIO] | None = None
        self._routers: tuple[Any, Any] = (None, None)

    def enter(self) -> None:
        if self._kept:
            self._inside.append(None)
            return
        with self._lock:
            self._inside.append(None)
            if self._real is None:
                self._real = sys.stdout, sys.stderr
                self._routers = _Router(sys.stdout), _Router(sys.stderr)
                sys.stdout, sys.stderr = self._routers

    def leave(self) -> None:
        """Restore the streams: what a handler has put there must not hurt the next one."""
        if self._kept:
            self._inside.pop()
            if not self._inside:
                sys.stdout, sys.stderr = self._routers
            return
        with self._lock:
            self._inside.pop()
            if not self._inside and self._real is not None:
                sys.stdout, sys.stderr = self._real
                self._real = None

    def after_fork(self) -> None:
        """Make a new lock: the thread that held it may not exist in the child."""
        self._lock = threading.Lock()

    def keep(self) -> None:
        self.enter()
        self._inside.pop()
        self._kept = True


_streams = _Streams()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_streams.after_fork)
