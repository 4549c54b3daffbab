"""A circuit breaker: arithmetic only, no store and no clock.

Closed, it counts failures in a row. So many of them open it, and nothing passes for a
while; then one probe does. What the probe comes to closes it or opens it anew, and while
it is open nothing else counts: what was under way already says nothing new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Circuit:
    """Where a breaker stands. Moments and lengths of time are of one unit, whichever."""

    failures: int = 0
    opened_at: int | None = None
    probe: str = ""

    @property
    def is_open(self) -> bool:
        """Whether nothing passes but a probe."""
        return self.opened_at is not None

    def cools_for(self, now: int, cooldown: int) -> int:
        """How long nothing at all passes yet."""
        return 0 if self.opened_at is None else max(self.opened_at + cooldown - now, 0)

    def probed_by(self, token: str) -> Circuit:
        """With its one probe under way. Whoever lets it pass has seen that the last one is over."""
        return replace(self, probe=token)

    def failed(self, token: str, now: int, threshold: int) -> Circuit:
        """After a failure of what passed with a token."""
        if self.opened_at is None:
            failures = self.failures + 1
            return Circuit(failures, now if failures >= threshold else None)
        return Circuit(self.failures + 1, now) if token == self.probe else self

    def succeeded(self, token: str) -> Circuit:
        """After a success of what passed with a token."""
        return self if self.is_open and token != self.probe else CLOSED

    def on_trust(self, threshold: int) -> Circuit:
        """Closed before the probe's end is known: the next failure opens it anew."""
        return Circuit(threshold - 1)


CLOSED = Circuit()
