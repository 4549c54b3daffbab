"""Conversion between the contract's objects and the texts in Redis. Nothing here connects."""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.base import AttemptRecord, Glimpse, Lease
from django_jobs.clock import to_datetime
from django_jobs.wire.envelope import MAX_MOMENT, Header, Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from django_jobs.backends.base import Failure, ResultRecord


# The line of JSON before a body, in this order; the scripts rely on the places of the keys.
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
_HEAD = 20
_PLACE = 19
_TOKEN = 32
_ID = 36
_taken = struct.Struct(">III").unpack_from
_TAKEN = 12
_SHORT = 1024
_WHOLE = {"concurrency", "expires"}
_MOST = 2**31 - 2


class JobRecord(NamedTuple):
    """The counters of a job, and its lease if it has one."""

    attempts: int = 0
    deliveries: int = 0
    crashes: int = 0
    suspect: bool = False
    leased_at: int = 0
    fence: int = 0
    keyed: bool = False
    put_off: int = 0
    done_by: str = ""
    worker: str = ""
    is_leased: bool = False


FRESH = JobRecord()
_FIRST_STATE = JobRecord(deliveries=1, is_leased=True)
"""The state of most leases: the first of its job, which has no keys."""


def unpack(
    raw: bytes, *, place: bytes, queue: str, backend: str, header: Header
) -> tuple[str, Message]:
    """The id and message of a place. Unreadable data makes a message that fails verification."""
    job_id = place[_PLACE:].decode("utf-8", "replace")
    line, _, body = raw.partition(b"\n")
    text = line[_HEAD:]
    signature = text[2:66]
    # The rest of the line is the same for most jobs of a handler, so it is cached.
    if signature.isalnum() and text[66:68] == b'",' and len(text) <= _SHORT and text[:2] == b'["':
        _, key_id, columns = _remembered(b'["' + text[66:], place[:3], queue, backend)
        signed = signature.decode()
    else:
        signed, key_id, columns = _columns(text, place[:3], queue, backend)
    message = Message(body.decode("utf-8", "replace"), signed, key_id, header, columns, job_id)
    return job_id, message


def _columns(
    text: bytes, rank: bytes, queue: str, backend: str
) -> tuple[str, str, Mapping[str, Any]]:
    """Signature, key id and columns from a line and the rank of its place."""
    fields: dict[str, Any] = dict.fromkeys(_FIELDS)
    for name, value in zip(_FIELDS, _parsed(text), strict=False):
        fields[name] = _sound(name, value)
    signature, key_id = fields.pop("signature"), fields.pop("key_id")
    columns: dict[str, Any] = {"backend": backend, "queue": queue, **fields}
    columns["name"] = columns["name"] or ""
    columns["handler"] = columns["handler"] or ""
    columns["rank"] = _number(rank) - 100
    return str(signature or ""), str(key_id or ""), columns


_remembered = lru_cache(maxsize=256)(_columns)


def _parsed(line: bytes) -> list[Any]:
    try:
        fields = json.loads(line.decode())
    except (ValueError, RecursionError):  # a line of nothing but brackets is nested too deep
        return []
    return fields if isinstance(fields, list) else []


def _sound(name: str, value: Any) -> str | int | None:
    """A field's value; one of a wrong type becomes something that matches no body."""
    if type(value) is int and name in _WHOLE:
        return value if abs(value) <= MAX_MOMENT else -1
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return None if value is None else f"<{type(value).__name__}>"


def state_of(raw: bytes | None) -> JobRecord:
    """The state that a script wrote; without one, that of a fresh job."""
    if not raw:
        return FRESH
    token, numbers = raw[:_TOKEN], raw[_TOKEN + 1 :].split(b":", 10)
    if len(numbers) != 11:  # noqa: PLR2004 - the number that the scripts write
        return FRESH
    attempts, deliveries, crashes, suspect, _, leased_at, fence, keyed, put_off, *texts = numbers
    done_by, worker = texts
    return JobRecord(
        attempts=_number(attempts, _MOST),
        deliveries=_number(deliveries, _MOST),
        crashes=_number(crashes, _MOST),
        suspect=suspect == b"1",
        leased_at=_number(leased_at),
        fence=_number(fence),
        keyed=keyed == b"1",
        put_off=_number(put_off),
        done_by=done_by.decode("utf-8", "replace"),
        worker=worker.decode("utf-8", "replace"),
        is_leased=token != b"-" * _TOKEN,
    )


def _number(raw: bytes, most: int = MAX_MOMENT) -> int:
    try:
        return min(max(int(raw), 0), most)
    except ValueError:
        return 0


def header_of(place: bytes, state: JobRecord) -> Header:
    """The counters of a job, and when it became due."""
    due = _number(place[3:_PLACE])
    counters = state.attempts, state.deliveries, state.crashes
    return Header(*counters, due, state.put_off or None)


def taken_of(text: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Place, message and state of each job in the answer of a fetch."""
    at, end = 0, len(text)
    while at < end:
        place, raw, state = _taken(text, at)
        first = at + _TAKEN
        second = first + place
        third = second + raw
        at = third + state
        yield text[first:second], text[second:third], text[third:at]


def lease_of(
    place: bytes, raw: bytes, text: bytes, *, queue: str, backend: str, token: str, expires_at: int
) -> Lease:
    """The lease of a job from the answer of a fetch."""
    state = state_of(text) if text else _FIRST_STATE
    job_id, message = unpack(
        raw, place=place, queue=queue, backend=backend, header=header_of(place, state)
    )
    return Lease(
        job_id, queue, token, expires_at, message, state.suspect, created_at(job_id),
        fence=state.fence or None, done_by=state.done_by, replayed=state.done_by == job_id,
        keyed=state.keyed,
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
    """When an id was made, from its own timestamp; None if that is no valid time."""
    if len(job_id) != _ID or job_id[14] != "7":
        return None
    try:
        return to_datetime(int(job_id[:8] + job_id[9:13], 16) * 1000)
    except (ValueError, OverflowError):
        return None


# How runs and jobs ended.

_quoted = json.encoder.encode_basestring_ascii
_settled = struct.Struct(">dB").pack

TEXT_BYTES = 1_000_000


def attempt_text(attempt: AttemptRecord | None) -> str:
    """The record of a run that did not succeed, as stored."""
    return "" if attempt is None else json.dumps(attempt._asdict())


def attempts_of(raw: list[bytes]) -> tuple[AttemptRecord, ...]:
    """Stored records of runs; unreadable ones are left out."""
    records = []
    for text in raw:
        try:
            record = AttemptRecord(**json.loads(text))
        except (ValueError, TypeError, RecursionError):
            continue
        if _is_record(record):
            records.append(record)
    return tuple(records)


def _is_record(record: AttemptRecord) -> bool:
    """Whether the record could be written as a row."""
    fields = record._asdict()
    numbers = [fields.pop("number"), fields.pop("started_at"), fields.pop("finished_at")]
    return all(isinstance(text, str) for text in fields.values()) and all(
        type(value) is int and 0 <= value <= most
        for value, most in zip(numbers, (_MOST, MAX_MOMENT, MAX_MOMENT), strict=True)
    )


def failure_text(failure: Failure) -> str:
    """Why a job is dead, as stored."""
    fields = {
        name: getattr(failure, name)
        for name in ("reason", "error_type", "error_message", "traceback", "output", "fingerprint")
    }
    return json.dumps(fields)


def result_text(lease: Lease, record: ResultRecord) -> str:
    """How a job ended, as stored; the script adds the body."""
    message = lease.message
    # Formatted by hand, because it is faster and runs for every job that keeps a result.
    return (
        f'{{"status":{_quoted(record.status)},"value_json":{_quoted(record.value_json)},'
        f'"output":{_quoted(record.output)},"worker":{_quoted(record.worker)},'
        f'"started_at":{_or_null(record.started_at)},'
        f'"finished_at":{_or_null(record.finished_at)},"queue":{_quoted(lease.queue)},'
        f'"handler":{_quoted(message.index["handler"])},"attempts":{message.header.attempts}}}'
    )


def _or_null(number: int | None) -> int | str:
    return "null" if number is None else number


def result_of(raw: bytes | None) -> dict[str, Any]:
    """The stored record of how a job ended; empty if it cannot be read."""
    line, _, body = (raw or b"").partition(b"\n")
    try:
        fields = json.loads(line.decode("utf-8", "replace") or "null")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(fields, dict):
        return {}
    return {"body": body.decode("utf-8", "replace"), **fields} if body else fields


def in_texts(parts: Iterable[bytes]) -> list[bytes]:
    """The parts joined in order into texts of a bounded length, each one argument for Redis."""
    texts: list[list[bytes]] = []
    size = TEXT_BYTES
    for part in parts:
        if size >= TEXT_BYTES:
            texts.append([])
            size = 0
        texts[-1].append(part)
        size += len(part)
    return [b"".join(text) for text in texts]


def settled_text(lease: Lease, result: str, life_ms: int, *, is_done: bool) -> bytes:
    """A settled lease in one argument for the script: several would cost more than the job."""
    name, token, kept = lease.id.encode(), lease.token.encode(), result.encode()
    head = struct.pack(
        f">H{len(name)}sH{len(token)}sI", len(name), name, len(token), token, len(kept)
    )
    return b"".join((head, kept, _settled(life_ms, is_done)))
