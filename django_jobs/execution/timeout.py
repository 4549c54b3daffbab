"""The soft timeout: an exception inside the handler when its time is up.

It needs the main thread and a system with interval timers. Elsewhere the time is only
looked at when the handler returns. It cannot stop code that never comes back to Python;
that is for the worker's parent, which kills the process.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


REPEAT_SECONDS = 5.0
"""A handler that swallows the interrupt, or cleans up for too long, gets another."""

_SOON = 0.000_001


class JobTimeout(BaseException):
    """The handler's time is up. No ``Exception``, so that ``except Exception`` lets it pass."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the job exceeded its timeout of {seconds:g} seconds")
        self.seconds = seconds


@contextmanager
def soft_timeout(seconds: float | None) -> Iterator[None]:
    """Raise JobTimeout inside the block after the given time; None sets no limit."""
    if seconds is None:
        yield
    elif can_interrupt():
        with _alarm(seconds):
            yield
    else:
        started = time.monotonic()
        yield
        if time.monotonic() - started > seconds:
            raise JobTimeout(seconds)


def can_interrupt() -> bool:
    """Whether a handler can be interrupted here, in this thread of this system."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    armed = True

    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        if armed:
            raise JobTimeout(seconds)

    previous = signal.signal(signal.SIGALRM, on_alarm)
    started = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_SECONDS)
    try:
        try:
            yield
        finally:
            armed = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if left:  # an alarm around this one goes on as if nothing had been
            left = max(left - (time.monotonic() - started), _SOON)
            signal.setitimer(signal.ITIMER_REAL, left, interval)
