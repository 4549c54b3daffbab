"""How long after its claim a job of a queue with a rate limit may start."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.values import Lease
    from django_jobs.backends.window import Rate

CALM_SECONDS = 10.0
REMEMBERED = 32  # claims of which nobody has heard yet what became of their jobs


class Lateness:
    """How late the jobs of one queue may start, as one process finds that it needs.

    Where a claim is answered so late that not even its first job can start, the next ones have
    twice as long, up to a window, or none would ever start. That is taken back when it has been
    enough for a while. What waited behind other jobs until it was too late says nothing.
    """

    def __init__(self) -> None:
        self._doublings = 0
        self._since = float("-inf")
        self._firsts: deque[tuple[str, str, int]] = deque(maxlen=REMEMBERED)

    def allowed(self, rate: Rate) -> int:
        """In microseconds, from the claim on."""
        now = time.monotonic()
        if self._doublings and now > self._since + CALM_SECONDS:
            self._doublings, self._since = self._doublings - 1, now
        return min(rate.late << self._doublings, rate.window)

    def claimed(self, first: Lease) -> None:
        """The first job of a claim is about to start."""
        self._firsts.append((first.id, first.token, self._doublings))

    def returned(self, rate: Rate, leases: Sequence[Lease]) -> None:
        """These did not start. Others may have been claimed before that is known."""
        late = {(lease.id, lease.token) for lease in leases if lease.is_late}
        for *first, doublings in tuple(self._firsts) if late else ():
            # What was allowed less than is allowed by now says nothing of what that is worth.
            too_little = tuple(first) in late and doublings >= self._doublings
            if too_little and self.allowed(rate) < rate.window:
                self._doublings, self._since = self._doublings + 1, time.monotonic()
