"""How runs and jobs ended, as Redis is told of it and tells of it again."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import AttemptRecord
from django_jobs.wire.envelope import MAX_MOMENT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_jobs.backends.base import Failure, Lease, ResultRecord

_quoted = json.encoder.encode_basestring_ascii
_settled = struct.Struct(">dB").pack
_MOST = 2**31 - 2
TEXT_BYTES = 1_000_000


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
    """How a job ended, for the store, which puts the body beside it."""
    message = lease.message
    # Written out, for it is written of every job that keeps a result.
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
    """What a store kept of how a job ended; nothing where that cannot be read."""
    line, _, body = (raw or b"").partition(b"\n")
    try:
        told = json.loads(line.decode("utf-8", "replace") or "null")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    return {"body": body.decode("utf-8", "replace"), **told} if body else told


def in_texts(parts: Iterable[bytes]) -> list[bytes]:
    """The parts in a row, in texts of a length that Redis takes for an argument."""
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
    """A lease that is settled, for the script: several arguments cost more than the job."""
    name, token, kept = lease.id.encode(), lease.token.encode(), result.encode()
    head = struct.pack(
        f">H{len(name)}sH{len(token)}sI", len(name), name, len(token), token, len(kept)
    )
    return b"".join((head, kept, _settled(life_ms, is_done)))
