"""The store's clock: the one seam through which every script takes its "now"."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_jobs.clock import Clock


class StoreClock:
    """Tells scripts to take Redis's own time, unless a test says what time it is."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock

    def arg(self) -> str:
        """The first argument of every script."""
        return "" if self._clock is None else str(int(self._clock.now()))
