"""Between what the contract passes around and what stands in Redis. Nothing here connects."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.base import AttemptRecord, Glimpse, Lease, ResultRecord
from django_jobs.clock import to_datetime
from django_jobs.wire.envelope import Header, Message, key_digest
from django_jobs.wire.opening import MAX_MOMENT

if TYPE_CHECKING:
    from datetime import datetime

    from django_jobs.backends.base import Failure
    from django_jobs.wire.envelope import Outgoing

# The line of JSON before a body, in this order; the scripts know the places of the keys.
_FIELDS = (
    "signature",
    "key_id",
    "handler",
    "name",
    "unique_key",
    "concurrency_key",
    "concurrency",
    "idempotency_key",
    "tenant",
    "expires",
    "trace_id",
    "replay_of",
)
_line_of = json.JSONEncoder(separators=(",", ":")).encode
_LEAST = 3
_HEAD = 20
_PLACE = 19
_TOKEN = 32
_ID = 36
_NO_FIELDS = dict.fromkeys(_FIELDS)
_FIRST = b"0:1:0:0:"
_FENCE = 74  # after a token, those, and two moments of sixteen digits
_WHOLE = {"concurrency", "expires"}
_MOST = 2**31 - 2


class Packed(NamedTuple):
    """A message as it goes to the script, which puts its place after its flag and rank."""

    text: str
    unique: str


class State(NamedTuple):
    """The counters of a job, and its lease if it has one."""

    attempts: int = 0
    deliveries: int = 0
    crashes: int = 0
    suspect: bool = False
    leased_at: int = 0
    fence: int = 0
    done_by: str = ""
    worker: str = ""
    is_leased: bool = False


FRESH = State()
_FIRST_STATE = State(deliveries=1, is_leased=True)
"""What a lease is told of most jobs: it is the first, and they have no keys."""


def pack(outgoing: Outgoing) -> Packed:
    """A message on its way to the store."""
    terms = outgoing.terms
    unique = lock = once = None
    if terms.unique_key is not None:
        unique = key_digest(terms.backend, terms.unique_key)
    if (held := terms.lock) is not None:
        lock = key_digest(terms.backend, held)
    if terms.idempotency_key is not None:
        once = key_digest(terms.backend, terms.once)
    told: list[Any] = [
        outgoing.signature,
        outgoing.key_id,
        terms.job,
        terms.name,
        unique,
        lock,
        terms.places,
        once,
        terms.tenant,
        terms.expires_at,
        terms.trace_id,
        terms.replay_of,
    ]
    while len(told) > _LEAST and told[-1] is None:
        told.pop()
    flag = "k" if unique or lock or once else "-"
    rank = 100 - terms.priority
    return Packed(f"{flag}{rank:03d}{_line_of(told)}\n{outgoing.body}", unique or "")


def unpack(
    raw: bytes, *, place: bytes, queue: str, backend: str, header: Header
) -> tuple[str, Message]:
    """The id and message of a place. What cannot be read makes a message that is not believed."""
    job_id = place[_PLACE:].decode("utf-8", "replace")
    line, _, body = raw.partition(b"\n")
    told = _told(line[_HEAD:])
    fields: dict[str, Any] = _NO_FIELDS.copy()
    for name, one in zip(_FIELDS, told, strict=False):
        # Most are short and plain, and every fetch looks at all of them.
        fields[name] = one if type(one) is str and one.isascii() else _sound(name, one)
    signature, key_id = fields.pop("signature"), fields.pop("key_id")
    index: dict[str, Any] = {"id": job_id, "backend": backend, "queue": queue, **fields}
    index["name"] = index["name"] or ""
    index["handler"] = index["handler"] or ""
    index["rank"] = _number(place[:3]) - 100
    message = Message(
        body.decode("utf-8", "replace"), str(signature or ""), str(key_id or ""), header, index
    )
    return job_id, message


def _told(line: bytes) -> list[Any]:
    try:
        told = json.loads(line.decode())
    except (ValueError, RecursionError):  # a line of nothing but brackets is nested too deep
        return []
    return told if isinstance(told, list) else []


def _sound(name: str, value: Any) -> str | int | None:
    """What a field holds, and where that is of another kind, something that no body says."""
    if type(value) is int and name in _WHOLE:
        return value if abs(value) <= MAX_MOMENT else -1
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return None if value is None else f"<{type(value).__name__}>"


def state_of(raw: bytes | None) -> State:
    """The state that a script wrote; that of a fresh job where there is none."""
    if not raw:
        return FRESH
    token, numbers = raw[:_TOKEN], raw[_TOKEN + 1 :].split(b":", 9)
    if len(numbers) != 10:  # noqa: PLR2004 - as many as the scripts write
        return FRESH
    attempts, deliveries, crashes, suspect, _, leased_at, fence, _, done_by, worker = numbers
    return State(
        attempts=_number(attempts, _MOST),
        deliveries=_number(deliveries, _MOST),
        crashes=_number(crashes, _MOST),
        suspect=suspect == b"1",
        leased_at=_number(leased_at),
        fence=_number(fence),
        done_by=done_by.decode("utf-8", "replace"),
        worker=worker.decode("utf-8", "replace"),
        is_leased=token != b"-" * _TOKEN,
    )


def _number(raw: bytes, most: int = MAX_MOMENT) -> int:
    try:
        return min(max(int(raw), 0), most)
    except ValueError:
        return 0


def header_of(place: bytes, state: State) -> Header:
    """The counters of a job, and when it became due."""
    due = _number(place[3:_PLACE])
    return Header(state.attempts, state.deliveries, state.crashes, due)


def lease_of(
    place: bytes, raw: bytes, text: bytes, *, queue: str, backend: str, token: str, expires_at: int
) -> Lease:
    """The lease that a fetch answered with."""
    first = text.startswith(_FIRST, _TOKEN + 1) and text.startswith(b":0:0::", _FENCE)
    state = _FIRST_STATE if first else state_of(text)
    job_id, message = unpack(
        raw, place=place, queue=queue, backend=backend, header=header_of(place, state)
    )
    return Lease(
        job_id, queue, token, expires_at, message, state.suspect, created_at(job_id),
        fence=state.fence or None, done_by=state.done_by, replayed=state.done_by == job_id,
    )  # fmt: skip


def glimpse_of(
    place: bytes,
    raw: bytes,
    text: bytes,
    *,
    queue: str,
    backend: str,
    stands: str,
    lease_expires: int | None = None,
) -> Glimpse:
    """A job as seen without leasing it."""
    state = state_of(text)
    header = header_of(place, state)
    job_id, message = unpack(raw, place=place, queue=queue, backend=backend, header=header)
    return Glimpse(
        id=job_id,
        queue=queue,
        state=stands,
        due=header.available_at,
        message=message,
        lease_expires=lease_expires,
        extra={
            "suspect": state.suspect,
            "created_at": created_at(job_id),
            "worker": state.worker,
            "leased_at": state.leased_at or None,
        },
    )


def created_at(job_id: str) -> datetime | None:
    """When an id was made; it tells so itself, in a year that there is."""
    if len(job_id) != _ID or job_id[14] != "7":
        return None
    try:
        return to_datetime(int(job_id[:8] + job_id[9:13], 16) * 1000)
    except (ValueError, OverflowError):
        return None


def attempt_text(attempt: AttemptRecord | None) -> str:
    """A run that did not succeed, for the store."""
    return "" if attempt is None else json.dumps(asdict(attempt))


def attempts_of(raw: list[bytes]) -> tuple[AttemptRecord, ...]:
    """The runs that a store told of; what cannot be read is left out."""
    found = []
    for text in raw:
        try:
            record = AttemptRecord(**json.loads(text))
        except (ValueError, TypeError, RecursionError):
            continue
        if _is_record(record):
            found.append(record)
    return tuple(found)


def _is_record(record: AttemptRecord) -> bool:
    """Whether it could be written as a row."""
    told = asdict(record)
    numbers = [told.pop("number"), told.pop("started_at"), told.pop("finished_at")]
    return all(isinstance(text, str) for text in told.values()) and all(
        type(value) is int and 0 <= value <= most
        for value, most in zip(numbers, (_MOST, MAX_MOMENT, MAX_MOMENT), strict=True)
    )


def failure_text(failure: Failure) -> str:
    """Why a job is dead, for the store."""
    told = {
        name: getattr(failure, name)
        for name in ("reason", "error_type", "error_message", "traceback", "output", "fingerprint")
    }
    return json.dumps(told)


def result_text(lease: Lease, record: ResultRecord) -> str:
    """How a job ended, for the store: with all that an account tells."""
    message = lease.message
    told = {
        **record._asdict(),
        "queue": lease.queue,
        "handler": message.index["handler"],
        "body": message.body,
        "attempts": message.header.attempts,
    }
    return json.dumps(told)
