"""From what a store gave back to an envelope that may be believed, or a named refusal.

The order of the checks is part of the security model: size before the HMAC, the HMAC
before any parsing, parsing before bindings. Nothing here runs a job or imports one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.exceptions import Rejection
from django_jobs.execution.retry import InvalidRetry, normalised
from django_jobs.ids import is_canonical
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import VERSION, WIRE_NAMES, Envelope, Message, Terms, index_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_jobs.wire.signing import Signer

# Everything of a body but its payload: keys, names, meta.
ENVELOPE_ALLOWANCE = 64 * 1024
# Terms as large as they may be are 64 KB each.
REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens the messages of one backend of one installation."""

    backend: str
    site: str
    max_payload_bytes: int
    signer: Signer
    verify_signatures: bool = True

    def open(self, message: Message, queue: str) -> Envelope:
        """The envelope of a message fetched from a queue; raises Rejection."""
        body = self._checked_bytes(message)
        if self.verify_signatures:
            self._check_signature(body, message)
        identifier, enqueued_at, payload, told = _parse(message.body)
        terms = told.terms
        self._check_bindings(terms, queue)
        _check_index({**told.columns, "id": identifier}, message)
        _check_schedule(terms, message)
        return Envelope(
            identifier=identifier,
            payload=payload,
            enqueued_at=enqueued_at,
            terms=terms,
            unknown=told.unknown,
        )

    def _checked_bytes(self, message: Message) -> bytes:
        limit = self.max_payload_bytes + ENVELOPE_ALLOWANCE
        if len(message.body) > limit:
            raise Rejection(
                "rejected-too-large", f"the body has {len(message.body)} bytes, {limit} are allowed"
            )
        return message.body.encode("utf-8", "surrogatepass")

    def _check_signature(self, body: bytes, message: Message) -> None:
        if self.signer.verify(body, message.signature, message.key_id):
            return
        if not message.signature:
            detail = "the message is not signed"
        elif not self.signer.knows(message.key_id):
            detail = f"no signing key has the id {message.key_id[:64]!r}; was it retired?"
        else:
            detail = "the signature does not fit the body"
        raise Rejection("rejected-signature", detail)

    def _check_bindings(self, terms: Terms, queue: str) -> None:
        if terms.site == self.site and terms.backend == self.backend and terms.queue == queue:
            return
        made_for = {"site": terms.site, "backend": terms.backend, "queue": terms.queue}
        expected = {"site": self.site, "backend": self.backend, "queue": queue}
        name = next(name for name, here in expected.items() if made_for[name] != here)
        raise Rejection(
            f"rejected-{name}",
            f"the job was made for the {name} {made_for[name]!r}, not {expected[name]!r}",
        )


def _check_index(said: Mapping[str, Any], message: Message) -> None:
    if message.index == said:
        return
    for column, value in message.index.items():
        if said[column] != value:
            raise Rejection(
                "rejected-mismatch",
                f"the column {column} says {value!r}, the signed body {said[column]!r}",
            )


def _check_schedule(terms: Terms, message: Message) -> None:
    if terms.schedule is not None and message.header.available_at < terms.schedule:
        raise Rejection("rejected-mismatch", "the message became due before its signed schedule")


class _Told(NamedTuple):
    """What a body says besides its id, its time and its payload."""

    terms: Terms
    unknown: Mapping[str, Any]
    columns: Mapping[str, Any]


def _parse(body: str) -> tuple[str, int, Any, _Told]:
    try:
        fields = strict_json.loads(body)
    except strict_json.NotStrictJson as error:
        raise Rejection("rejected-malformed", str(error)) from error
    if not isinstance(fields, dict):
        raise Rejection("rejected-malformed", "the body is not a JSON object")
    version = fields.pop("v", None)
    if type(version) is not int or version < 1:
        raise Rejection("rejected-malformed", f"v is {_shown(version)}, not a version number")
    if version > VERSION:
        raise NewerVersion(version)
    return _built(fields)


class NewerVersion(Rejection):
    """A well-signed message of a version that this release does not know.

    It is not a forgery but a rolling deploy: the unknown-handler policy decides.
    """

    def __init__(self, version: int) -> None:
        super().__init__(
            "unknown-version", f"the message has version {version}, this release reads {VERSION}"
        )


def _built(body: dict[str, Any]) -> tuple[str, int, Any, _Told]:
    identifier = body.pop("identifier", None)
    if identifier is None or not is_canonical(identifier):
        raise Rejection("rejected-malformed", f"identifier is {_shown(identifier)}, not an id")
    enqueued_at = body.pop("enqueuedAt", None)
    if not _moment(enqueued_at):
        raise Rejection("rejected-malformed", f"enqueuedAt is {_shown(enqueued_at)}, not a time")
    if "payload" not in body:
        raise Rejection("rejected-malformed", "the body has no payload")
    payload = body.pop("payload")
    return identifier, enqueued_at, payload, _told(body)


def _told(body: dict[str, Any]) -> _Told:
    """The terms of a body. Many jobs share theirs, so that they are read and judged once."""
    # Types are part of the key, because 1, 1.0 and True are equal. What can be changed is
    # not hashable, so nothing of the kind is ever shared between jobs.
    try:
        return _told_once(tuple(body.items()), tuple(map(type, body.values())))
    except TypeError:
        return _read(body)


@lru_cache(maxsize=REMEMBERED)
def _told_once(items: tuple[tuple[str, Any], ...], _types: tuple[type, ...]) -> _Told:
    return _read(dict(items))


def _read(body: dict[str, Any]) -> _Told:
    fields, unknown = _told_apart(body)
    terms = Terms(**fields)
    return _Told(terms, MappingProxyType(unknown), index_of("", terms))


def _told_apart(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The terms among the fields of a body, each held against its rule, and the rest."""
    terms: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for wire, value in body.items():
        name = _FIELDS.get(wire)
        if name is None:
            unknown[wire] = value
        elif value is not None:
            if not _RULES[name](value):
                raise Rejection("rejected-malformed", f"{wire} is {_shown(value)}")
            terms[name] = value
    for name in _REQUIRED:
        if name not in terms:
            raise Rejection("rejected-malformed", f"the body has no {WIRE_NAMES[name]}")
    return terms, unknown


def _shown(value: Any) -> str:
    return shortened(repr(value))


def shortened(text: str) -> str:
    """A text that fits an error message."""
    return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."


def _text(limit: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and 0 < len(value) <= limit


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _seconds(value: Any) -> bool:
    return type(value) in {int, float} and 0 <= value <= MAX_SECONDS


def _retry(value: Any) -> bool:
    try:
        return bool(normalised(value) == value)
    except InvalidRetry:
        return False


SHOWN_LENGTH = 80
MAX_SECONDS = 100 * 366 * 86_400
MAX_MOMENT = 2**53 - 1
MAX_COUNT = 2**31 - 1
_moment = _whole(0, MAX_MOMENT)
_REQUIRED = ("job", "queue", "backend", "site")
_FIELDS = {wire: name for name, wire in WIRE_NAMES.items()}
_RULES: Mapping[str, Callable[[Any], bool]] = {
    "job": _text(255),
    "queue": _text(64),
    "backend": _text(64),
    "site": _text(255),
    "priority": _whole(-100, 100),
    "max_retries": _whole(0, MAX_COUNT - 1),
    "name": _text(255),
    "idempotency_key": _text(255),
    "schedule": _moment,
    "delay": _seconds,
    "timeout": _seconds,
    "max_crashes": _whole(1, MAX_COUNT),
    "retry": _retry,
    "single_instance": _text(255),
    "concurrency_key": _text(255),
    "concurrency": _whole(1, MAX_COUNT),
    "atomic": lambda value: isinstance(value, bool),
    "unique_key": _text(255),
    "result_ttl": _seconds,
    "tenant": _text(255),
    "meta": lambda value: isinstance(value, dict),
    "expires_at": _moment,
    "trace_id": _text(64),
    "replay_of": is_canonical,
}
"""What each field of a signed body may hold. A correct signature is no excuse for nonsense."""
