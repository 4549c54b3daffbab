"""Circuit breakers of queues and handlers that all workers of a store share.

Workers cache the state of the breakers for up to half a second; decisions are made in the store.
The probe is a lease, like the place of a key: when the lease ends for any reason, another probe
may start.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.breakers import CLOSED, Circuit
from django_jobs.backends.values import Evidence
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Lease

LOOK_SECONDS = 0.5
"""How long a process caches limits and breakers."""


class Closed:
    """Cache of queues known to be closed, each with the reason and until when.

    Never for long: an operator can change at any time what closes a queue.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, str]] = {}

    def shut(self, queue: str, seconds: float, why: str) -> None:
        self._until[queue] = (time.monotonic() + min(seconds, LOOK_SECONDS), why)

    def left(self, queue: str) -> float:
        """Seconds until a queue opens again."""
        until, _ = self._until.get(queue, (0.0, ""))
        return max(until - time.monotonic(), 0.0)

    def all(self) -> dict[str, float]:
        """The closed queues, each with the seconds until it opens again."""
        return {queue: left for queue in self._until if (left := self.left(queue))}

    def why(self, queue: str) -> str | None:
        """Why a queue is closed: ``rate-limited`` or ``circuit-open``; None if it is open."""
        return self._until[queue][1] if self.left(queue) else None

    def open(self, queue: str) -> None:
        """Forget that a queue was closed."""
        self._until.pop(queue, None)


PROBED_SECONDS = 0.25
TRUSTED_SECONDS = 5.0
"""Checking a message takes milliseconds: a job that runs for so long was not refused."""
QUEUE, HANDLER = "queue", "handler"
_BAD = {Evidence.REFUSED, Evidence.FAILED}


class Rule(NamedTuple):
    """When a breaker opens, and for how long."""

    kind: str
    name: str
    threshold: int
    cooldown: int


def rule_of_queue(queue: str) -> Rule | None:
    """The breaker of a queue's rejections, if the settings enable one."""
    config = get_settings().circuit_breaker
    if config.rejections is None:
        return None
    return Rule(QUEUE, queue, config.rejections, to_microseconds(config.cooldown))


def rule_of_handler(handler: str) -> Rule | None:
    """The breaker of a handler, if the settings name it."""
    config = get_settings().circuit_breaker
    own = config.handlers.get(handler)
    if own is None:
        return None
    cooldown = config.cooldown if own.cooldown is None else own.cooldown
    return Rule(HANDLER, handler, own.threshold or config.threshold, to_microseconds(cooldown))


def rule_of(kind: str, name: str) -> Rule | None:
    """The rule of a breaker, if the settings enable it."""
    return rule_of_queue(name) if kind == QUEUE else rule_of_handler(name)


class SharedBreakers(ABC):
    """The breakers of one backend, cached in this process."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._seen: dict[tuple[str, str], Circuit] = {}
        self._looked_at = float("-inf")

    @abstractmethod
    def _read(self) -> dict[tuple[str, str], Circuit]:
        """The breakers with counted failures, by kind and name."""

    @abstractmethod
    def _change(
        self, rule: Rule, decide: Callable[[Circuit, int], Circuit], *, make: bool
    ) -> tuple[Circuit, Circuit]:
        """Apply ``decide`` to a breaker in one step; return it as it was before and after.

        ``make``: whether to create a breaker that does not exist yet.
        """

    @abstractmethod
    def _probe(self, rule: Rule, leases: list[Lease]) -> list[Lease]:
        """Return one lease if a probe is due; put the others off without charging them."""

    def is_open(self, queue: str) -> bool:
        """Whether the breaker of a queue is open, so that a claim has to consult it."""
        return self._circuit_of(rule_of_queue(queue)).is_open

    def admit(self, leases: Sequence[Lease]) -> list[Lease]:
        """Of leases just claimed, those that the breakers of their handlers let pass."""
        self._look()
        if not any(kind == HANDLER and seen.is_open for (kind, _), seen in self._seen.items()):
            return list(leases)
        by_handler: dict[str, list[Lease]] = {}
        for lease in leases:
            by_handler.setdefault(_handler_of(lease), []).append(lease)
        passes: dict[str, Lease] = {}
        for handler in sorted(by_handler):
            alike, rule = by_handler[handler], rule_of_handler(handler)
            if rule is not None and self._circuit_of(rule).is_open:
                alike = self._probe(rule, alike)
            passes.update((lease.id, lease) for lease in alike)
        return [passes[lease.id] for lease in leases if lease.id in passes]

    def count_evidence(self, observations: Sequence[tuple[Lease, Evidence]]) -> None:
        """Count the outcomes of settled deliveries in their breakers."""
        self._look()
        if not self._seen and not any(
            lease.probe or evidence in _BAD for lease, evidence in observations
        ):
            return
        for lease, evidence in observations:
            if evidence is not Evidence.NOTHING:
                queue = rule_of_queue(lease.queue)
                self._count(queue, lease, failed=evidence is Evidence.REFUSED)
            if evidence in {Evidence.WORKED, Evidence.FAILED}:
                handler = rule_of_handler(_handler_of(lease))
                self._count(handler, lease, failed=evidence is Evidence.FAILED)

    def _count(self, rule: Rule | None, lease: Lease, *, failed: bool) -> None:
        if rule is None or not (failed or lease.probe or self._circuit_of(rule).failures):
            return
        threshold = rule.threshold

        def decide(before: Circuit, now: int) -> Circuit:
            if failed:
                return before.failed(lease.token, now, threshold)
            return before.succeeded(lease.token)

        self._turned(rule, *self._change(rule, decide, make=failed))

    def _turned(self, rule: Rule, before: Circuit, after: Circuit) -> None:
        """Update the cache at once, and emit an event if the breaker opened or closed."""
        self._seen[rule.kind, rule.name] = after
        about: dict[str, Any] = {"backend": self._backend, "kind": rule.kind, "subject": rule.name}
        if after.is_open and after.opened_at != before.opened_at:
            seconds = rule.cooldown / SECOND
            events.emit(events.BreakerOpened(**about, failures=after.failures, seconds=seconds))
        elif before.is_open and not after.is_open:
            events.emit(events.BreakerClosed(**about))

    def _circuit_of(self, rule: Rule | None) -> Circuit:
        if rule is None:
            return CLOSED
        self._look()
        return self._seen.get((rule.kind, rule.name), CLOSED)

    def _look(self) -> None:
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._seen = self._read()
            self._looked_at = time.monotonic()


def waits_for(rule: Rule, pause: int) -> int:
    """How long jobs other than the probe wait: the cooldown, or until the probe has ended."""
    return pause or min(to_microseconds(get_settings().snooze_delay), rule.cooldown)


def _handler_of(lease: Lease) -> str:
    return str(lease.message.index.get("handler", ""))
