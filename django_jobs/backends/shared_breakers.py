"""Circuit breakers that all workers of a store share: of queues, and of handlers.

What workers know of the breakers is up to half a second old; whatever is decided is decided
where they are kept. The probe is a lease, as the place of a key is: when it ends, whoever
ends it, another one may try.
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


# Queues of which this process knows that nothing can be claimed for a while, and why.


LOOK_SECONDS = 0.5
"""So old may be what a process knows of limits and breakers."""


class Closed:
    """Until when, as far as is known here: whoever claims looks again after that.

    Never for long, for what closes a queue can be changed at any time by an operator.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, str]] = {}

    def shut(self, queue: str, seconds: float, why: str) -> None:
        self._until[queue] = (time.monotonic() + min(seconds, LOOK_SECONDS), why)

    def left(self, queue: str) -> float:
        """Seconds for which nothing can be claimed from a queue."""
        until, _ = self._until.get(queue, (0.0, ""))
        return max(until - time.monotonic(), 0.0)

    def all(self) -> dict[str, float]:
        """The queues of which nothing can be claimed for so many seconds."""
        return {queue: left for queue in self._until if (left := self.left(queue))}

    def why(self, queue: str) -> str | None:
        """``rate-limited`` or ``circuit-open``, or None when it is not closed."""
        return self._until[queue][1] if self.left(queue) else None

    def open(self, queue: str) -> None:
        """Something changed."""
        self._until.pop(queue, None)


PROBED_SECONDS = 0.25
TRUSTED_SECONDS = 5.0
"""Checking a message takes milliseconds: what has run for so long was not refused."""
QUEUE, HANDLER = "queue", "handler"
_BAD = {Evidence.REFUSED, Evidence.FAILED}


class Rule(NamedTuple):
    """When a breaker opens, and for how long."""

    kind: str
    name: str
    threshold: int
    cooldown: int


def rule_of_queue(queue: str) -> Rule | None:
    """The breaker of a queue's rejections, if there is to be one."""
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
    """What holds for a breaker."""
    return rule_of_queue(name) if kind == QUEUE else rule_of_handler(name)


class SharedBreakers(ABC):
    """The breakers of one backend, as this process last saw them."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._seen: dict[tuple[str, str], Circuit] = {}
        self._looked_at = float("-inf")

    @abstractmethod
    def _read(self) -> dict[tuple[str, str], Circuit]:
        """All that have counted something, by kind and name."""

    @abstractmethod
    def _change(
        self, rule: Rule, decide: Callable[[Circuit, int], Circuit], *, make: bool
    ) -> tuple[Circuit, Circuit]:
        """A breaker before and after what ``decide`` makes of it now, in one step.

        ``make``: whether it comes to be where there is none yet.
        """

    @abstractmethod
    def _probe(self, rule: Rule, leases: list[Lease]) -> list[Lease]:
        """One of the leases if it is time for a probe; the others wait, and lose nothing."""

    def is_open(self, queue: str) -> bool:
        """Whether a claim from the queue has to ask its breaker."""
        return self._circuit_of(rule_of_queue(queue)).is_open

    def admit(self, leases: Sequence[Lease]) -> list[Lease]:
        """Of leases just given, those that the breakers of their handlers let pass."""
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

    def learn(self, observations: Sequence[tuple[Lease, Evidence]]) -> None:
        """Count what settled deliveries say, where a breaker has something to count."""
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
        """What the others see within half a second counts here at once."""
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
    """How long jobs wait that are no probe: the cooldown, or until another one has tried."""
    return pause or min(to_microseconds(get_settings().snooze_delay), rule.cooldown)


def _handler_of(lease: Lease) -> str:
    return str(lease.message.index.get("handler", ""))
