"""Verify a message from a store and open it to an envelope, or refuse it with a reason.

The order of the checks is part of the security model: size before the HMAC, the HMAC
before any parsing, parsing before bindings. Nothing here runs a job or imports one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.clock import SECOND, to_microseconds
from django_jobs.exceptions import Rejection
from django_jobs.ids import is_canonical
from django_jobs.texts import shortened
from django_jobs.wire import strict_json
from django_jobs.wire.envelope import (
    MAX_MOMENT,
    REQUIRED_TERMS,
    RULES,
    VERSION,
    WIRE_NAMES,
    Envelope,
    Message,
    Terms,
    columns_of,
    is_moment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django_jobs.wire.signing import Signer

# For everything in a body but its payload: keys, names, meta.
ENVELOPE_ALLOWANCE = 64 * 1024
CLOCKS_APART = 300 * SECOND
"""How far the clock of a signer may be ahead of the store's."""
MOMENTS_APART = SECOND
"""A store may read its clock more than once in a claim."""
# The largest terms take 64 KB each.
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
        """The envelope of a message fetched from a queue; raises Rejection, and nothing else."""
        try:
            return self._opened(message, queue)
        except Rejection:
            raise
        except Exception as error:  # one bad message must not stop the worker
            reason = f"it cannot be read: {type(error).__name__}"
            raise Rejection("rejected-malformed", reason) from error

    def _opened(self, message: Message, queue: str) -> Envelope:
        body = self._checked_bytes(message)
        if self.verify_signatures:
            self._check_signature(body, message)
        identifier, enqueued_at, payload, parsed = _parse(message.body)
        terms = parsed.terms
        self._check_bindings(terms, queue)
        _check_index(identifier, parsed.columns, message)
        _check_header(terms, message)
        return Envelope(identifier, payload, enqueued_at, terms, parsed.unknown)

    def _checked_bytes(self, message: Message) -> bytes:
        limit = self.max_payload_bytes * strict_json.WIDEST + ENVELOPE_ALLOWANCE
        if len(message.body) > limit:
            raise Rejection(
                "rejected-too-large", f"the body has {len(message.body)} bytes, {limit} are allowed"
            )
        return message.body.encode("utf-8", "surrogatepass")

    def _check_signature(self, body: bytes, message: Message) -> None:
        if self.signer.verify(body, message.signature, message.key_id):
            return
        if not message.signature or not message.key_id:
            raise Rejection("rejected-signature", "the message is not signed")
        if not self.signer.knows(message.key_id):
            raise UnknownKey(message.key_id)
        raise Rejection("rejected-signature", "the signature does not fit the body")

    def _check_bindings(self, terms: Terms, queue: str) -> None:
        if terms.site == self.site and terms.backend == self.backend and terms.queue == queue:
            return
        if terms.site != self.site:
            raise OtherSite(terms.site, self.site)
        made_for = {"backend": terms.backend, "queue": terms.queue}
        expected = {"backend": self.backend, "queue": queue}
        name = next(name for name, here in expected.items() if made_for[name] != here)
        raise Rejection(
            f"rejected-{name}",
            f"the job was made for the {name} {made_for[name]!r}, not {expected[name]!r}",
        )


def _check_index(identifier: str, columns: Mapping[str, Any], message: Message) -> None:
    if message.id == identifier and message.index == columns:
        return
    kept = message.index if message.id is None else {**message.index, "id": message.id}
    signed = {**columns, "id": identifier}
    for column, value in kept.items():
        if signed[column] != value:
            raise Rejection(
                "rejected-mismatch",
                f"the column {column} says {value!r}, the signed body {signed[column]!r}",
            )


def _check_header(terms: Terms, message: Message) -> None:
    message.header.clamped(terms)  # raises where a counter is no number
    if terms.schedule is not None and message.header.available_at < terms.schedule:
        raise Rejection("rejected-mismatch", "the message became due before its signed schedule")


def early_by(envelope: Envelope, now: int) -> int:
    """How long a job that was leased at ``now`` has yet to wait for its signed time.

    The due time in a store can be tampered with. A ``schedule`` is a moment. A delay counts from
    the store's now, and the body has only the signer's idea of it. If the signer's clock is ahead
    of the store's by more than ``CLOCKS_APART``, a sound job looks as if it had been brought
    forward. So it is not refused: it waits for the difference, which is no longer than its delay,
    and then runs. A clock still further ahead is recognised, because the job was leased before it
    was signed.
    """
    terms = envelope.terms
    if terms.schedule is not None:
        return max(terms.schedule - MOMENTS_APART - now, 0)
    if terms.delay is None or envelope.enqueued_at > now + CLOCKS_APART:
        return 0
    return max(envelope.enqueued_at + to_microseconds(terms.delay) - CLOCKS_APART - now, 0)


class ParsedTerms(NamedTuple):
    """The fields of a body besides its id, its time and its payload."""

    terms: Terms
    unknown: Mapping[str, Any]
    columns: Mapping[str, Any]


def _parse(body: str) -> tuple[str, int, Any, ParsedTerms]:
    return _parse_as_sealed(body) or _parse_whole(body)


def _parse_as_sealed(body: str) -> tuple[str, int, Any, ParsedTerms] | None:
    """Parse a body in exactly the form that ``Seal`` writes, with its terms from a cache.

    For any other body return None: ``_parse_whole`` parses it, or says what is wrong. Both give
    the same result for a body in this form.
    """
    if not body.startswith(_BEFORE_ID) or not body.startswith(_BEFORE_PAYLOAD, _ID_ENDS):
        return None
    identifier = body[len(_BEFORE_ID) : _ID_ENDS]
    try:
        payload, end = strict_json.value_at(body, _PAYLOAD_BEGINS)
    except ValueError:
        return None
    moment_begins = end + len(_BEFORE_MOMENT)
    moment_ends = body.find(",", moment_begins)
    moment = body[moment_begins:moment_ends]
    if not (
        body.startswith(_BEFORE_MOMENT, end)
        and _MOMENT.fullmatch(moment)
        and is_canonical(identifier)
        and (enqueued_at := int(moment)) <= MAX_MOMENT
    ):
        return None
    parsed = _parse_tail(body[moment_ends + 1 :])
    return None if parsed is None else (identifier, enqueued_at, payload, parsed)


@lru_cache(maxsize=REMEMBERED)
def _parse_tail(tail: str) -> ParsedTerms | None:
    """The terms at the end of a body; None where they cannot be shared or are not valid JSON."""
    try:
        fields = strict_json.loads("{" + tail)
    except strict_json.NotStrictJson:
        return None
    # ``_parse_whole`` refuses a body that has a field twice or ends with a comma. Mutable values
    # are never shared.
    changeable = any(isinstance(value, list | dict) for value in fields.values())
    if changeable or not fields or not _HEAD.isdisjoint(fields):
        return None
    return _build_terms(fields)


def _parse_whole(body: str) -> tuple[str, int, Any, ParsedTerms]:
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
    return _parse_fields(fields)


class NotJudged(Rejection):
    """A message that this process cannot judge, but another worker may.

    That is expected during a rolling deploy, so the unknown-handler policy decides.
    """


class NewerVersion(NotJudged):
    """A well-signed message of a version that this release does not know."""

    def __init__(self, version: int) -> None:
        super().__init__(
            "unknown-version", f"the message has version {version}, this release reads {VERSION}"
        )


class UnknownKey(NotJudged):
    """A message signed with a key that this process does not have. Nothing in it is trusted."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            "unknown-key", f"no signing key has the id {key_id[:64]!r}; was it retired?"
        )


class OtherSite(NotJudged):
    """A well-signed message that was made for another site."""

    def __init__(self, site: str, expected: str) -> None:
        super().__init__("other-site", f"the job was made for the site {site!r}, not {expected!r}")


def _parse_fields(body: dict[str, Any]) -> tuple[str, int, Any, ParsedTerms]:
    identifier = body.pop("identifier", None)
    if identifier is None or not is_canonical(identifier):
        raise Rejection("rejected-malformed", f"identifier is {_shown(identifier)}, not an id")
    enqueued_at = body.pop("enqueuedAt", None)
    if not is_moment(enqueued_at):
        raise Rejection("rejected-malformed", f"enqueuedAt is {_shown(enqueued_at)}, not a time")
    if "payload" not in body:
        raise Rejection("rejected-malformed", "the body has no payload")
    payload = body.pop("payload")
    return identifier, enqueued_at, payload, _read_terms(body)


def _read_terms(body: dict[str, Any]) -> ParsedTerms:
    """The terms of a body. Many jobs share theirs, so they are read and checked once."""
    # Types are part of the key, because 1, 1.0 and True are equal. Mutable values are not
    # hashable, so jobs never share them.
    try:
        return _read_terms_cached(tuple(body.items()), tuple(map(type, body.values())))
    except TypeError:
        return _build_terms(body)


@lru_cache(maxsize=REMEMBERED)
def _read_terms_cached(items: tuple[tuple[str, Any], ...], _types: tuple[type, ...]) -> ParsedTerms:
    return _build_terms(dict(items))


def _build_terms(body: dict[str, Any]) -> ParsedTerms:
    fields, unknown = _split_known_fields(body)
    terms = Terms(**fields)
    return ParsedTerms(terms, MappingProxyType(unknown), columns_of(terms))


def _split_known_fields(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the fields of a body into terms, each checked by its rule, and unknown ones."""
    terms: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for wire, value in body.items():
        if wire not in _TERMS:
            unknown[wire] = value
        elif value is not None:
            name, holds = _TERMS[wire]
            if not holds(value):
                raise Rejection("rejected-malformed", f"{wire} is {_shown(value)}")
            terms[name] = value
    for name in REQUIRED_TERMS:
        if name not in terms:
            raise Rejection("rejected-malformed", f"the body has no {WIRE_NAMES[name]}")
    return terms, unknown


def _shown(value: Any) -> str:
    return shortened(repr(value))


# How a body of Seal begins; tests keep the two in step.
_HEAD = frozenset({"v", "identifier", "payload", "enqueuedAt"})
_BEFORE_ID = f'{{"v":{VERSION},"identifier":"'
_ID_ENDS = len(_BEFORE_ID) + 36
_BEFORE_PAYLOAD = '","payload":'
_PAYLOAD_BEGINS = _ID_ENDS + len(_BEFORE_PAYLOAD)
_BEFORE_MOMENT = ',"enqueuedAt":'
_MOMENT = re.compile("[1-9][0-9]{15}")  # from 2001 until they have one digit more
_TERMS = {wire: (name, RULES[name]) for name, wire in WIRE_NAMES.items()}
