"""The rows that an ended job of any backend leaves in Django's tables.

Makes rows of results, dead letters and failed attempts, and an account of a dead letter.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, UUID, uuid5

from django.db import models
from django.utils import timezone

from django_jobs.backends.base import Account, AttemptRecord, Charge, Failure, Lease, ResultRecord
from django_jobs.clock import SECOND, from_datetime
from django_jobs.db.clock import for_people, maybe_for_people
from django_jobs.models import FailedJob, JobAttempt, JobResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


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
    """The dead letter of a lease: its body unchanged, its counters including this charge."""
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
    """Make untrusted values fit: every database has to accept them."""
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if isinstance(value, str):
            text = value.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
            setattr(row, field.attname, text[: getattr(field, "max_length", None)])
        if isinstance(field, models.UUIDField) and value is not None:
            setattr(row, field.attname, _uuid(value))


def id_of_dead(job_id: str) -> UUID:
    """The id of a dead letter; derived from the text if that is no UUID."""
    return _uuid(job_id) or uuid5(NAMESPACE_OID, job_id)


def _uuid(value: object) -> UUID | None:
    try:
        return UUID(str(value))
    except ValueError:
        return None


def fingerprint_without_error(handler: str, reason: str) -> str:
    """The fingerprint of a job that ended without an exception: one group for each reason."""
    return hashlib.sha256(f"{handler}\n{reason}".encode()).hexdigest()[:32]


def attempt_of(lease: Lease, record: AttemptRecord) -> JobAttempt:
    """The row of a failed run."""
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


def dead_account(alias: str, backend: str, job_id: str) -> Account | None:
    dead = FailedJob.objects.using(alias).filter(job_id=job_id, backend=backend)
    row = dead.values_list(
        "queue", "handler", "body", "attempts", "failed_at", "reason", "error_type",
        "error_message", "traceback",
    ).first()  # fmt: skip
    if row is None:
        return None
    queue, handler, body, failed, failed_at, reason, error_type, message, traceback = row
    return Account(
        id=job_id,
        queue=queue,
        handler=handler,
        status="dead",
        body=body,
        attempts=failed_runs_of(alias, backend, job_id, failed),
        failed_attempts=failed,
        finished_at=microseconds_of(failed_at),
        reason=reason,
        error_type=error_type,
        error_message=message,
        traceback=traceback,
    )


def failed_runs_of(alias: str, backend: str, job_id: str, failed: int) -> tuple[AttemptRecord, ...]:
    """The recorded failed runs of a job; no query if there were none."""
    if not failed:
        return ()
    rows = JobAttempt.objects.using(alias).filter(job_id=job_id, backend=backend)
    attempts = rows.order_by("number", "id").values_list(
        "number", "outcome", "started_at", "finished_at", "error_type", "error_message",
        "traceback", "worker",
    )  # fmt: skip
    return tuple(
        AttemptRecord(
            number=number,
            outcome=outcome,
            started_at=microseconds_of(started) or 0,
            finished_at=microseconds_of(finished) or 0,
            error_type=error_type,
            error_message=message,
            traceback=traceback,
            worker=worker,
        )
        for number, outcome, started, finished, error_type, message, traceback, worker in attempts
    )


def microseconds_of(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    return from_datetime(moment if timezone.is_aware(moment) else timezone.make_aware(moment))
