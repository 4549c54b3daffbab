"""Keeps a worker from asking again and again for work that is there and not to be had.

A row that somebody else holds locked is due for everybody who looks, and for nobody who
claims.
"""

from __future__ import annotations

FIRST_PAUSE = 0.005


class Restraint:
    """Pauses that double as long as waits end at once and lead to nothing."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._least = FIRST_PAUSE

    def pause_after(self, lasted: float) -> float:
        """Seconds to pause after a wait that lasted so long."""
        least = self._least
        if lasted >= least:
            self.end()
            return 0.0
        self._least = min(least * 2, self._most)
        return least - lasted

    def end(self) -> None:
        """There was work."""
        self._least = FIRST_PAUSE
