"""One end for everything a call does. Time limits for single steps never add up beyond it."""

from __future__ import annotations

import time

from django_jobs.exceptions import UrlFailed


class Deadline:
    """So many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self, most: float = float("inf")) -> float:
        """Seconds for the next step; raises UrlFailed when there are none left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise UrlFailed(f"the call was not done after {self._seconds:g} seconds")
        return min(left, most)
