"""Signals: the first asks the worker to stop, the second stops it now."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django_jobs.execution.attempt import StopNow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_EXIT_BASE = 128


class Stop:
    """Whether the worker was asked to stop, by which signal, and how urgently."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.signal_number: int | None = None
        self.urgent = False

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
        previous = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signal_number = number
        if not self.asked.is_set():
            self.ask()
            return
        self.urgent = True
        raise StopNow
