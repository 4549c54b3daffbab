"""Doing something again and again until Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SLICE_SECONDS = 0.1


class Watch:
    """The first Ctrl-C ends it after the current look, a second one at once.

    A flag, because a KeyboardInterrupt may come while a driver cleans up and is then lost.
    """

    def __init__(self, look: Callable[[], None], interval: float) -> None:
        self._look = look
        self._interval = interval
        self._over = False

    def run(self) -> None:
        """Look until interrupted."""
        if threading.current_thread() is not threading.main_thread():
            self._loop()
            return
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            self._loop()
        finally:
            signal.signal(signal.SIGINT, before)

    def _loop(self) -> None:
        while not self._over:
            self._look()
            self._pause()

    def _pause(self) -> None:
        next_look = time.monotonic() + self._interval
        while not self._over and (left := next_look - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_SECONDS))

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        if self._over:
            raise KeyboardInterrupt
        self._over = True
