"""One end for everything a call does. Time limits for single steps never add up beyond it."""

from __future__ import annotations

import time

from django_jobs.exceptions import UrlFailed


class Deadline:
    """So many seconds from now, or those of an attempt that ends before."""

    def __init__(
        self, seconds: float, timeout: float | None = None, ends_at: float | None = None
    ) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds
        if timeout is not None and ends_at is not None and ends_at < self._end:
            self._seconds, self._end = timeout, ends_at

    def left(self, most: float = float("inf")) -> float:
        """Seconds for the next step; raises UrlFailed when there are none left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise UrlFailed(f"the call was not done after {self._seconds:g} seconds")
        return min(left, most)
