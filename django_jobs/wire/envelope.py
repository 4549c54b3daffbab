"""The envelope: the fields of a message, and which of them are signed.

A message is a body and a header. The **body** is JSON text that is written once, signed,
stored as it is and never written again: everything about the job that must not change.
The **header** holds what changes from delivery to delivery (attempts, crashes, when it is
available). It is deliberately unsigned, so its values are clamped to the range that the
signed body allows.

``Terms`` are the part of a body that many jobs can share; their JSON is made once.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from django_jobs.ids import is_canonical
from django_jobs.retry import InvalidRetry, normalised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_jobs.wire.signing import Signer


# What each field of a signed body may hold: a correct signature does not make a value valid.

MAX_SECONDS = 100 * 366 * 86_400
MAX_MOMENT = 2**53 - 1
MAX_COUNT = 2**31 - 1
FULL = MAX_COUNT - 1
"""The highest accepted counter, so that it can be increased once more."""


def _text(limit: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and 0 < len(value) <= limit


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _seconds(value: Any) -> bool:
    return type(value) in {int, float} and 0 <= value <= MAX_SECONDS


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _retry(value: Any) -> bool:
    try:
        return bool(normalised(value) == value)
    except InvalidRetry:
        return False


is_moment = _whole(0, MAX_MOMENT)
VERSION = 1


KeyKind = Literal["unique", "instance", "concurrency", "idempotency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """All fields of a job but its id, its payload and the moment of its enqueue.

    Moments are microseconds, lengths of time are seconds. None means "not set": the worker's
    own setting applies. Each field carries the rule for its value in a body; its name on the wire
    is the same in camelCase.
    """

    job: str = field(metadata={"rule": _text(255)})
    queue: str = field(metadata={"rule": _text(64)})
    backend: str = field(metadata={"rule": _text(64)})
    site: str = field(metadata={"rule": _text(255)})
    priority: int = field(default=0, metadata={"rule": _whole(-100, 100)})
    max_retries: int = field(default=0, metadata={"rule": _whole(0, MAX_COUNT - 1)})
    name: str | None = field(default=None, metadata={"rule": _text(255)})
    idempotency_key: str | None = field(default=None, metadata={"rule": _text(255)})
    schedule: int | None = field(default=None, metadata={"rule": is_moment})
    delay: float | None = field(default=None, metadata={"rule": _seconds})
    timeout: float | None = field(default=None, metadata={"rule": _seconds})
    max_crashes: int | None = field(default=None, metadata={"rule": _whole(1, MAX_COUNT)})
    retry: str | list[float] | dict[str, Any] | None = field(
        default=None, metadata={"rule": _retry}
    )
    single_instance: str | None = field(default=None, metadata={"rule": _text(255)})
    concurrency_key: str | None = field(default=None, metadata={"rule": _text(255)})
    concurrency: int | None = field(default=None, metadata={"rule": _whole(1, MAX_COUNT)})
    atomic: bool | None = field(default=None, metadata={"rule": _flag})
    unique_key: str | None = field(default=None, metadata={"rule": _text(255)})
    result_ttl: float | None = field(default=None, metadata={"rule": _seconds})
    tenant: str | None = field(default=None, metadata={"rule": _text(255)})
    meta: Mapping[str, Any] | None = field(default=None, metadata={"rule": _object})
    expires_at: int | None = field(default=None, metadata={"rule": is_moment})
    trace_id: str | None = field(default=None, metadata={"rule": _text(64)})
    replay_of: str | None = field(default=None, metadata={"rule": is_canonical})

    @property
    def unique(self) -> str | None:
        """The key of which only one job may be live, or None."""
        return key_digest("unique", self.backend, self.unique_key)

    @property
    def lock(self) -> str | None:
        """The key of jobs that must not run at the same time, or None."""
        if self.single_instance is not None:
            return key_digest("instance", self.backend, self.single_instance)
        return key_digest("concurrency", self.backend, self.concurrency_key)

    @property
    def places(self) -> int | None:
        """How many jobs of the lock may run at a time."""
        if self.single_instance is not None:
            return 1
        return None if self.concurrency_key is None else self.concurrency or 1

    @property
    def once(self) -> str | None:
        """The key of jobs that do the same work, or None."""
        return key_digest("idempotency", self.backend, self.idempotency_key, self.job)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


REQUIRED_TERMS = tuple(term.name for term in fields(Terms) if term.default is MISSING)
WIRE_NAMES: Mapping[str, str] = {
    name: _camel_case(name)
    for name in sorted(Terms.__dataclass_fields__, key=REQUIRED_TERMS.__contains__)
}
"""Field of Terms → name on the wire, in the order of a body, which ends with those that are
required. The rest of a body: v, identifier, payload, enqueuedAt.
"""
RULES: Mapping[str, Callable[[Any], bool]] = {
    term.name: term.metadata["rule"] for term in fields(Terms)
}


class Envelope(NamedTuple):
    """A body that was verified and opened."""

    identifier: str
    payload: Any
    enqueued_at: int
    terms: Terms
    unknown: Mapping[str, Any] = MappingProxyType({})


class Header(NamedTuple):
    """The unsigned counters of a message, as the store has them.

    ``put_off_since``: when a worker first put the message off because it could not judge it
    (``Charge.PUT_OFF``); None if never, or if it has been run since.
    """

    attempts: int = 0
    deliveries: int = 0
    crashes: int = 0
    available_at: int = 0
    put_off_since: int | None = None

    def bounded(self) -> Header:
        """The same, held to the range of stores; our code never writes values beyond it."""
        a, d, c, at, _ = self
        if 0 <= a <= FULL and 0 <= d <= FULL and 0 <= c <= FULL and 0 <= at <= MAX_MOMENT:
            return self
        a, d, c = (min(max(count, 0), FULL) for count in (a, d, c))
        return Header(a, d, c, min(max(at, 0), MAX_MOMENT), self.put_off_since)

    def clamped(self, terms: Terms) -> Header:
        """The same counters, held within what the signed body allows."""
        attempts, deliveries, crashes, _, _ = self
        most = terms.max_retries + 1
        if 0 <= attempts <= most and deliveries >= 0 and crashes >= 0:
            return self
        return self._replace(
            attempts=min(max(attempts, 0), most),
            deliveries=max(deliveries, 0),
            crashes=max(crashes, 0),
        )


class Outgoing(NamedTuple):
    """A sealed body on its way to a store, beside the terms it was written from."""

    id: str
    body: str
    signature: str
    key_id: str
    terms: Terms


class Message(NamedTuple):
    """A message as a store returns it; nothing in it is trusted before it is opened.

    ``index`` holds the columns a store keeps beside the body to find messages by; they must
    agree with the body. Many messages may share one dict, so it must not be changed. ``id`` is
    kept apart where a store does so: it is the only column unique to a message.
    """

    body: str
    signature: str
    key_id: str
    header: Header
    index: Mapping[str, Any] = MappingProxyType({})  # type: ignore[assignment]  # not a tuple's
    id: str | None = None


class Seal:
    """Writes and signs bodies that share the same terms.

    The terms are encoded once, so that sealing each of many jobs costs little more than its
    payload and its signature.
    """

    def __init__(self, terms: Terms, signer: Signer) -> None:
        self.terms = terms
        self._signer = signer
        values = {wire: getattr(terms, name) for name, wire in WIRE_NAMES.items()}
        fields = {wire: value for wire, value in values.items() if value is not None}
        self._tail = json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":"))[
            1:
        ]

    def outgoing(
        self, identifier: str, payload_json: str, enqueued_at: int, trace_parent: str = ""
    ) -> Outgoing:
        """Seal a body. ``trace_parent`` is in the W3C format, which needs no escaping."""
        traced = f'"traceParent":"{trace_parent}",' if trace_parent else ""
        body = (
            f'{{"v":{VERSION},"identifier":"{identifier}","payload":{payload_json},'
            f'"enqueuedAt":{enqueued_at},{traced}{self._tail}'
        )
        return Outgoing(identifier, body, self._signer.sign(body), self._signer.key_id, self.terms)


def index_of(identifier: str, terms: Terms) -> dict[str, Any]:
    """The columns a store may keep beside a body, derived from it in this one place."""
    return {"id": identifier, **columns_of(terms)}


def columns_of(terms: Terms) -> dict[str, Any]:
    """The columns that jobs of the same terms share."""
    return {
        "backend": terms.backend,
        "queue": terms.queue,
        "handler": terms.job,
        "name": terms.name or "",
        "rank": -terms.priority,
        "unique_key": terms.unique,
        "concurrency_key": terms.lock,
        "concurrency": terms.places,
        "idempotency_key": terms.once,
        "tenant": terms.tenant,
        "expires": terms.expires_at,
        "trace_id": terms.trace_id,
        "replay_of": terms.replay_of,
    }


def key_digest(kind: KeyKind, backend: str, key: str | None, *of: str) -> str | None:
    """A key as stores compare it: of fixed length, the same under every collation.

    Stores may keep all kinds of keys together, so the kind is part of the digest. No joined part
    can hold a NUL: a signed body has none.
    """
    if key is None:
        return None
    return hashlib.sha256("\x00".join((kind, backend, *of, key)).encode()).hexdigest()


# The trace context in a body: the enqueue that a run belongs to, in the W3C format.

TRACE_PARENT = "traceParent"
_FORM = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def parent_of(envelope: Envelope) -> str | None:
    """The trace parent in a body; an invalid one is ignored, because nothing depends on it."""
    parent = envelope.unknown.get(TRACE_PARENT)
    return parent if isinstance(parent, str) and _FORM.fullmatch(parent) else None


def trace_of(envelope: Envelope) -> str | None:
    """The id of the trace that the enqueue was part of."""
    parent = parent_of(envelope)
    return parent[3:35] if parent else None
