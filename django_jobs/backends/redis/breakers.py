"""Circuit breakers in Redis.

Each breaker is one text in a hash. Its next state is computed here, by the arithmetic that
every store shares, and stored by compare and swap: only if the text has not changed since it
was read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from django_jobs.backends.base import Standing
from django_jobs.backends.breakers import CLOSED, Circuit
from django_jobs.backends.redis.connection import is_of_a_key
from django_jobs.backends.redis.scripts import SCRIPTS
from django_jobs.backends.shared_breakers import (
    PROBED_SECONDS,
    TRUSTED_SECONDS,
    Rule,
    SharedBreakers,
    rule_of_queue,
    waits_for,
)
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.exceptions import StoreUnavailable
from django_jobs.wire.envelope import MAX_MOMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.backends.redis.store import RedisStore
    from django_jobs.backends.shared_breakers import Closed

PUT_OFF_AT_ONCE = 1000
RESERVED_SECONDS = 5.0
"""How long the right to probe is reserved while the worker looks for a job."""


class Kept(NamedTuple):
    """A breaker with its probe: the job, once there is one, and since when."""

    circuit: Circuit = CLOSED
    job: str = ""
    queue: str = ""
    began: int = 0

    @property
    def text(self) -> str:
        """The text in Redis; empty for a breaker that has counted nothing."""
        if self.circuit == CLOSED:
            return ""
        circuit = self.circuit
        fields = [circuit.failures, circuit.opened_at, circuit.probe, self.job, self.queue]
        return json.dumps([*fields, self.began])

    @classmethod
    def read(cls, text: bytes) -> Kept:
        """The breaker of a text; one that cannot be read has counted nothing."""
        try:
            failures, opened_at, probe, job, queue, began = json.loads(text or b"[]")
            opened = None if opened_at is None else _whole(opened_at)
            circuit = Circuit(_whole(failures), opened, _text(probe))
            return cls(circuit, _text(job), _text(queue), _whole(began))
        except (ValueError, TypeError, OverflowError, RecursionError):
            return cls()


def _whole(value: Any) -> int:
    return min(max(int(value), 0), MAX_MOMENT)


def _text(value: Any) -> str:
    """Raises ValueError for text that could not be sent back to Redis."""
    return str(value).encode().decode()


class RedisBreakers(SharedBreakers):
    """The breakers of one backend in Redis."""

    def __init__(self, store: RedisStore, backend: str, closed: Closed) -> None:
        super().__init__(backend)
        self._store = store
        self._closed = closed

    def let_one_pass(self, queue: str, take: Callable[[str], list[Lease]]) -> list[Lease]:
        """Lease jobs; while the breaker is open, only a probe, and only when one is due.

        The right to probe is taken first, and then a job for it.
        """
        rule, token = rule_of_queue(queue), uuid4().hex
        if rule is None:
            return take(token)
        trusted = to_microseconds(TRUSTED_SECONDS)

        def decide(kept: Kept, now: int) -> Kept:
            if not kept.circuit.is_open:
                return kept
            began, left = self._probe_began(kept, now), kept.circuit.cools_for(now, rule.cooldown)
            if began is not None and now - began > trusted:
                return Kept(kept.circuit.on_trust(rule.threshold))
            if began is not None or left:
                seconds = left / SECOND or PROBED_SECONDS
                self._closed.shut(queue, seconds, "circuit-open")
                return kept
            return Kept(kept.circuit.probed_by(token), "", queue, now)

        before, after, _ = self._decided(rule, decide)
        self._turned(rule, before.circuit, after.circuit)
        if after.circuit.is_open and after.circuit.probe != token:
            return []
        leases = take(token)
        if not after.circuit.is_open:
            return leases
        updated = after._replace(job=leases[0].id) if leases else before._replace(job="")
        self._store.shared(lambda: self._swap(rule, after.text, updated.text), otherwise=False)
        return [lease._replace(probe=True) for lease in leases]

    def _probe(self, rule: Rule, leases: list[Lease]) -> list[Lease]:
        first = leases[0]

        def decide(kept: Kept, now: int) -> Kept:
            busy = self._probe_began(kept, now) is not None
            if not kept.circuit.is_open or busy or kept.circuit.cools_for(now, rule.cooldown):
                return kept
            return Kept(kept.circuit.probed_by(first.token), first.id, first.queue, now)

        before, after, now = self._decided(rule, decide)
        if not after.circuit.is_open:
            return leases
        passes = leases[:1] if after != before else []
        pause = after.circuit.cools_for(now, rule.cooldown)
        if waiting := leases[len(passes) :]:
            due = now + waits_for(rule, pause)
            self._put_off(waiting, due)
            args = [due, rule.name, PUT_OFF_AT_ONCE]
            self._store.run("putoffnext", first.queue, args)  # what claims would meet next
        return [lease._replace(probe=True) for lease in passes]

    def _put_off(self, leases: Sequence[Lease], due: int) -> None:
        named = [part for lease in leases for part in (lease.id, lease.token, lease.counted)]
        self._store.run("putoff", leases[0].queue, [due, *named])

    def _change(
        self, rule: Rule, decide: Callable[[Circuit, int], Circuit], *, make: bool
    ) -> tuple[Circuit, Circuit]:
        def decided(kept: Kept, now: int) -> Kept:
            if kept.circuit == CLOSED and not make:
                return kept
            return kept._replace(circuit=decide(kept.circuit, now))

        before, after, _ = self._decided(rule, decided)
        return before.circuit, after.circuit

    def _decided(self, rule: Rule, decide: Callable[[Kept, int], Kept]) -> tuple[Kept, Kept, int]:
        """Before, after, and when. While its server is away, a breaker has counted nothing."""
        unknown = (Kept(), Kept(), 0)
        return self._store.shared(lambda: self._decided_there(rule, decide), unknown)

    def _decided_there(
        self, rule: Rule, decide: Callable[[Kept, int], Kept]
    ) -> tuple[Kept, Kept, int]:
        """Decide and store; decide again whenever another process stored first.

        This ends: each retry means that another process succeeded.
        """
        while True:
            server_time, stored, _ = self._ask(rule)
            before, now = Kept.read(stored), int(server_time)
            after = decide(before, now)
            if after == before or self._swap(rule, stored, after.text):
                return before, after, now

    def _swap(self, rule: Rule, stored: bytes | str, text: str) -> bool:
        return bool(int(self._ask(rule, stored, text)[2]))

    def _ask(self, rule: Rule, *change: bytes | str) -> tuple[bytes, bytes, int]:
        args = [self._store.clock.arg(), f"{rule.kind}:{rule.name}", *change]
        keys = [self._store.layout.breakers]
        now, stored, changed = self._store.connection.run(SCRIPTS["breaker"], keys, args)
        return now, stored, changed

    def _probe_began(self, kept: Kept, now: int) -> int | None:
        """When the current probe began, or None if no probe is under way."""
        if not kept.circuit.probe:
            return None
        reserved = kept.began if now < kept.began + to_microseconds(RESERVED_SECONDS) else None
        if not kept.job:
            return reserved
        try:
            began = int(self._store.run("leased", kept.queue, [kept.job, kept.circuit.probe]))
        except StoreUnavailable:
            # In a cluster that queue may be on another server, which is away; other queues go on.
            return reserved
        return None if began < 0 else began

    def _read(self) -> dict[tuple[str, str], Circuit]:
        return {(kind, name): kept.circuit for (kind, name), kept in self._all().items()}

    def _all(self) -> dict[tuple[str, str], Kept]:
        key = self._store.layout.breakers
        nothing: dict[bytes, bytes] = {}
        try:
            texts = self._store.shared(
                lambda: self._store.connection.ask(lambda client: client.hgetall(key)), nothing
            )
        except Exception as error:
            if not is_of_a_key(error):
                raise
            texts = {}  # the key holds something else, and no breakers
        breakers = {}
        for raw, text in texts.items():
            kind, _, name = raw.decode("utf-8", "replace").partition(":")
            breakers[kind, name] = Kept.read(text)
        return breakers

    def standing(self) -> list[Standing]:
        """The open breakers and their current state."""
        standings = []
        for (kind, name), kept in self._all().items():
            if kept.circuit.is_open:
                now, *_ = self._ask(Rule(kind, name, 0, 0))
                standings.append(Standing(kind, name, kept.circuit, int(now)))
        return standings

    def forget(self, kind: str, name: str) -> bool:
        """Close a breaker and reset its counts."""
        key = self._store.layout.breakers
        self._seen.pop((kind, name), None)
        self._closed.open(name)
        return bool(self._store.connection.ask(lambda client: client.hdel(key, f"{kind}:{name}")))
