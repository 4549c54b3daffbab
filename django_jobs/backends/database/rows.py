"""Between rows and the contract's value objects. Nothing here asks the database."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, UUID, uuid5

from django.conf import settings
from django.db import models
from django.utils import timezone

from django_jobs.backends.base import AttemptRecord, Charge, Failure, Glimpse, Lease, ResultRecord
from django_jobs.clock import SECOND, to_datetime, within_years
from django_jobs.models import FailedJob, JobAttempt, JobResult, JobState
from django_jobs.wire.envelope import Header, Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

INDEX_FIELDS = (
    "id",
    "backend",
    "queue",
    "handler",
    "name",
    "rank",
    "unique_key",
    "concurrency_key",
    "concurrency",
    "idempotency_key",
    "tenant",
    "expires",
    "trace_id",
    "replay_of",
)
"""The columns that must say what the signed body says."""

ROW_FIELDS = (
    *INDEX_FIELDS,
    "body",
    "signature",
    "key_id",
    "attempts",
    "deliveries",
    "crashes",
    "due",
    "put_off_since",
    "suspect",
    "created_at",
    "cancel_requested",
    "state",
    "lease_expires",
)
"""The columns of a job that is read: for its index, its message, its lease, and the rest."""

_INDEX_SIZE = len(INDEX_FIELDS)
_MESSAGE_SIZE = ROW_FIELDS.index("suspect")
_LEASE_SIZE = ROW_FIELDS.index("state")
# SQLite keeps whatever it is given, so a column may hold something of another kind.
_MESSAGE_KINDS = {(str, str, str, int, int, int, int, kind) for kind in (int, NoneType)}
_TEXTS = frozenset({"backend", "queue", "handler", "name"})
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(INDEX_FIELDS, (str, NoneType)),
    **dict.fromkeys(_TEXTS, (str,)),
    **dict.fromkeys(("concurrency", "expires"), (int, NoneType)),
    "rank": (int,),
    "replay_of": (UUID, str, NoneType),
}


def _message(row: Sequence[Any], extra_deliveries: int = 0) -> Message:
    """The message of a row; raises ValueError where that holds what nobody can use."""
    index = _index(row[1:_INDEX_SIZE])
    said = row[_INDEX_SIZE:_MESSAGE_SIZE]
    if tuple(map(type, said)) not in _MESSAGE_KINDS:
        raise ValueError("its body, its signature or a counter is of another kind")
    body, signature, key_id, attempts, deliveries, crashes, due, put_off_since = said
    header = Header(attempts, deliveries + extra_deliveries, crashes, due, put_off_since)
    return Message(body, signature, key_id, header.bounded(), index, str(row[0]))


@lru_cache(maxsize=256)
def _index(columns: Sequence[Any]) -> dict[str, Any]:
    """The columns but the id, which comes first. One for all jobs in which they are the same:
    on its way to a child it is written once for each frame.
    """
    index = dict(zip(INDEX_FIELDS[1:], columns, strict=True))
    for name, value in index.items():
        if type(value) not in _KINDS[name]:
            raise ValueError(f"{name} is of the kind {type(value).__name__}")
    if index["concurrency"] is not None and index["concurrency"] < 1:
        raise ValueError(f"concurrency is {index['concurrency']}: it would never have a place")
    if index["replay_of"] is not None:
        index["replay_of"] = str(index["replay_of"])
    return index


def lease_of(
    row: Sequence[Any],
    *,
    token: str,
    expires_at: int,
    extra_deliveries: int = 1,
    handle: str | None = None,
) -> Lease:
    """The lease of a row that was read before it was claimed: this delivery is added."""
    message = _message(row, extra_deliveries)
    suspect, created_at, cancelled = row[_MESSAGE_SIZE:_LEASE_SIZE]
    return Lease(
        message.id or "",
        message.index["queue"],
        token,
        expires_at,
        message,
        bool(suspect),
        created_at,
        handle,
        cancelled=bool(cancelled),
    )


def glimpse_of(row: Sequence[Any]) -> Glimpse:
    """A row as seen without leasing it."""
    message = _message(row)
    suspect, created_at, _, state, lease_expires = row[_MESSAGE_SIZE:]
    return Glimpse(
        id=message.id or "",
        queue=message.index["queue"],
        state=JobState.label_of(state),
        due=message.header.available_at,
        message=message,
        lease_expires=lease_expires if type(lease_expires) is int else None,
        extra={"suspect": bool(suspect), "created_at": created_at},
    )


def results_of(
    leases: Sequence[Lease], results: Mapping[str, ResultRecord], now: int
) -> list[JobResult]:
    """The result rows of leases that have one."""
    rows = []
    for lease in leases:
        record = results.get(lease.id)
        if record is None:
            continue
        index = lease.message.index
        rows.append(
            JobResult(
                job_id=UUID(lease.id),
                backend=index["backend"],
                queue=lease.queue,
                handler=index["handler"],
                name=index["name"],
                status=record.status,
                value=record.value_json,
                output=record.output,
                attempts=lease.message.header.attempts,
                trace_id=index["trace_id"],
                tenant=index["tenant"],
                worker=record.worker,
                enqueued_at=lease.created_at,
                started_at=maybe_for_people(record.started_at),
                finished_at=maybe_for_people(record.finished_at),
                body=lease.message.body,
                expires=now + int(record.ttl_seconds * SECOND),
            )
        )
    return rows


def failed_job_of(lease: Lease, failure: Failure, now: int) -> FailedJob:
    """The dead letter of a lease: the body as it is, the counters with this charge."""
    message, index = lease.message, lease.message.index
    header = message.header
    return FailedJob(
        backend=index["backend"],
        job_id=UUID(lease.id),
        queue=lease.queue,
        handler=index["handler"],
        name=index["name"],
        rank=index["rank"],
        body=message.body,
        signature=message.signature,
        key_id=message.key_id,
        attempts=header.attempts + (failure.charge is Charge.ATTEMPT),
        deliveries=header.deliveries,
        crashes=header.crashes + (failure.charge is Charge.CRASH),
        trace_id=index["trace_id"],
        tenant=index["tenant"],
        replay_of=index["replay_of"],
        reason=failure.reason,
        error_type=failure.error_type[:255],
        error_message=failure.error_message,
        traceback=failure.traceback,
        output=failure.output,
        fingerprint=failure.fingerprint
        or fingerprint_without_error(index["handler"], failure.reason),
        enqueued_at=lease.created_at,
        failed_at=for_people(now),
    )


def fit(row: models.Model) -> None:
    """Hold what may have been written by anybody to what every database takes."""
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if isinstance(value, str):
            text = value.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
            setattr(row, field.attname, text[: getattr(field, "max_length", None)])
        if isinstance(field, models.UUIDField) and value is not None:
            setattr(row, field.attname, _uuid(value))


def id_of_dead(job_id: str) -> UUID:
    """The id of a dead letter; made up for what was no id."""
    return _uuid(job_id) or uuid5(NAMESPACE_OID, job_id)


def _uuid(value: object) -> UUID | None:
    try:
        return UUID(str(value))
    except ValueError:
        return None


def fingerprint_without_error(handler: str, reason: str) -> str:
    """For a job that ended without an exception: all of one reason are one group."""
    return hashlib.sha256(f"{handler}\n{reason}".encode()).hexdigest()[:32]


def attempt_of(lease: Lease, record: AttemptRecord) -> JobAttempt:
    """The row of one run that did not succeed."""
    return JobAttempt(
        backend=lease.message.index["backend"],
        job_id=UUID(lease.id),
        number=record.number,
        outcome=record.outcome,
        started_at=for_people(record.started_at),
        finished_at=for_people(record.finished_at),
        error_type=record.error_type[:255],
        error_message=record.error_message,
        traceback=record.traceback,
        output=record.output,
        worker=record.worker[:128],
    )


def maybe_for_people(microseconds: int | None) -> datetime | None:
    """The same, for a moment that may be unknown."""
    return None if microseconds is None else for_people(microseconds)


def for_people(microseconds: int) -> datetime:
    """A moment as a DateTimeField of this site wants it: naive where USE_TZ is off."""
    moment = to_datetime(within_years(microseconds))
    if not settings.USE_TZ:
        return timezone.make_naive(moment)
    return moment
