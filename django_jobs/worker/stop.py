"""When a worker ends: by a first signal after the current job, by a second one at once."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_jobs.execution.attempt import StopNow, is_running
from django_jobs.worker.store import close_idle_connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

HANGUP = getattr(signal, "SIGHUP", None)  # the terminal is gone; there is none on Windows
SIGNALS = (signal.SIGTERM, signal.SIGINT, *([HANGUP] if HANGUP else []))
_EXIT_BASE = 128
EXIT_SECONDS = 5.0


def _keep_exit_code() -> None:
    """Ignore signals while Python exits, which takes a while and resets its handlers first.

    Otherwise a third signal would kill the process, and change its exit code. To block them would
    not do: a signal goes to any thread that does not, and daemon threads are there to the end.
    """
    for number in SIGNALS:
        atexit.register(signal.signal, number, signal.SIG_IGN)


def leave_in_time(code: int, seconds: float = EXIT_SECONDS) -> None:
    """End this process within some seconds, even if exit hooks or threads keep Python from exiting.

    They get this time to send what they have buffered. To be called last.
    """

    def leave() -> None:
        time.sleep(seconds)
        os._exit(code)

    threading.Thread(target=leave, daemon=True).start()


class Woken(BaseException):
    """A signal came while there was nothing to do but wait."""


class Stop:
    """Whether the worker was asked to stop, by which signal, and how urgently.

    A signal interrupts user code and waiting. Store operations are short and are completed: an
    interrupted settle would be a lost lease.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.signal_number: int | None = None
        self.urgent = False
        self.ends_process = False
        """Whether the process ends after the block of ``listening``, as a command does."""
        self._waits = False

    def ask(self) -> None:
        """Stop after the job that runs now."""
        self.asked.set()

    @property
    def exit_code(self) -> int:
        """0 after an orderly stop; 143 or 130 when a second signal cut it short."""
        if self.urgent and self.signal_number is not None:
            return _EXIT_BASE + self.signal_number
        return 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """React to signals inside the block, where this thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # A worker started with nohup should outlive the terminal.
        heeded = [n for n in SIGNALS if n != HANGUP or signal.getsignal(n) != signal.SIG_IGN]
        previous = {number: signal.signal(number, self._on_signal) for number in heeded}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, self._leave if self.ends_process else handler)
            if self.ends_process:
                _keep_exit_code()

    def unless_asked(self, wait: Callable[[], object]) -> None:
        """Call ``wait``, unless asked to stop; a signal interrupts it."""
        try:
            try:
                self._waits = True
                if not self.asked.is_set():
                    wait()
            finally:
                self._waits = False
        except Woken:
            # A query of the wait may have been interrupted.
            close_idle_connections()

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        os._exit(self.exit_code)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == HANGUP and self.asked.is_set():
            return  # the system and a shell may both report the same terminal; this is not urgent
        self.signal_number = number
        self.urgent = self.asked.is_set()
        self.ask()
        if self._waits:
            self._waits = False
            raise Woken
        if self.urgent and is_running():
            raise StopNow


DRAINING = "an operator asked it to drain"
NOTHING_DUE = "nothing is due"
ONE_CYCLE = "one cycle was asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """When a worker ends by itself."""

    once: bool = False
    until_empty: bool = False
    max_jobs: int | None = None
    max_seconds: float | None = None


class EndConditions:
    """When a worker is to end, whatever kind of worker it is."""

    def __init__(self, stop: Stop, limits: WorkerLimits) -> None:
        self._stop = stop
        self._limits = limits
        self.begin()

    def begin(self) -> None:
        """Start counting ``max_seconds``."""
        self._ends_at = time.monotonic() + (self._limits.max_seconds or float("inf"))

    def seconds_left(self) -> float:
        return self._ends_at - time.monotonic()

    def reason(self, processed: int, *, draining: bool) -> str:
        """Why the worker is to end now; empty if it is not."""
        limits = self._limits
        if self._stop.asked.is_set():
            return "a signal asked for it" if self._stop.signal_number else "asked to stop"
        if draining:
            return DRAINING
        if limits.max_jobs is not None and processed >= limits.max_jobs:
            return f"{limits.max_jobs} jobs were processed"
        if self.seconds_left() <= 0:
            return f"{limits.max_seconds:g} seconds are over"
        return ""
