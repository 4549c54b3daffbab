"""The soft timeout: an exception inside the handler when its time is up.

It needs the main thread and a system with interval timers. Elsewhere the time is
checked only when the handler returns. It cannot stop code that never returns to Python; for that
the worker's parent kills the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from django_jobs.handlers.base import JobTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import FrameType


REPEAT_SECONDS = 5.0
"""After this time a handler that swallows the exception, or cleans up too long, gets another."""

_HAS_TIMERS = hasattr(signal, "setitimer")
_SOON = 0.000_001
_main: int | None = None


def _find_main() -> None:
    global _main  # noqa: PLW0603 - to ask for it costs as much as to set an alarm
    _main = threading.main_thread().ident


_find_main()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_find_main)  # the forking thread is the child's main thread
# The C function below signal.getsignal, which tries to convert the handler to an enum member:
# for a function that fails, and costs more than the rest of an alarm.
handler_of: Any = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)


def soft_timeout(seconds: float | None, grace: float = 0.0) -> AbstractContextManager[None]:
    """Raise JobTimeout inside the block after ``seconds``; None sets no limit.

    ``grace``: seconds to wait longer, where an event loop has the same limit.
    """
    if seconds is None:
        return nullcontext()
    return (_Alarm if can_interrupt() else _checked_afterwards)(seconds, grace)


def can_interrupt() -> bool:
    """Whether a handler can be interrupted here, in this thread of this system."""
    return _HAS_TIMERS and threading.get_ident() == _main


def keep_alarm() -> None:
    """Keep the signal handler installed from now on, in a process that only runs jobs."""
    _Alarm.kept = True
    if can_interrupt():
        signal.signal(signal.SIGALRM, _on_alarm)


@contextmanager
def _checked_afterwards(seconds: float, grace: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    if time.monotonic() - started > seconds + grace:
        raise JobTimeout(seconds)


class _Alarm:
    """One timeout by the interval timer of this process. Timeouts may be nested."""

    kept = False
    running: ClassVar[list[_Alarm]] = []

    def __init__(self, seconds: float, grace: float) -> None:
        self.seconds = seconds
        self._grace = grace
        self._previous: Any = None

    def __enter__(self) -> None:
        if handler_of(signal.SIGALRM) is not _on_alarm:
            self._previous = signal.signal(signal.SIGALRM, _on_alarm)
        self.running.append(self)
        self._started = time.monotonic()
        after = self.seconds + self._grace
        self._around = signal.setitimer(signal.ITIMER_REAL, after, REPEAT_SECONDS)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.running.pop()
        if self._previous is not None and not self.kept:
            signal.signal(signal.SIGALRM, self._previous)
        left, interval = self._around
        if left:  # the alarm around this one goes on
            left = max(left - (time.monotonic() - self._started), _SOON)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


# Raised in there, the exception would leave the timer running and the block half entered.
_ENDS_OF_THE_BLOCK = {_Alarm.__enter__.__code__, _Alarm.__exit__.__code__}


def _on_alarm(_number: int, frame: FrameType | None) -> None:
    if _Alarm.running and (frame is None or frame.f_code not in _ENDS_OF_THE_BLOCK):
        raise JobTimeout(_Alarm.running[-1].seconds)
