"""All that the tables know of one job, brought together.

The result is looked for first: who asks most likely waits for an end, and then one read by
primary key is all it takes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from django_jobs.backends.base import Account, AttemptRecord
from django_jobs.backends.values import reason_of
from django_jobs.clock import from_datetime
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult, JobState

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet


def account_of(alias: str, backend: str, job_id: str) -> Account | None:
    """The account of a job of one backend, or None when there is no trace of it."""
    # What ended well between the first look and the second is found by the last one.
    for look in (_ended_well, _alive, dead_account, _ended_well):
        if found := look(alias, backend, job_id):
            return found
    return None


def _ended_well(alias: str, backend: str, job_id: str) -> Account | None:
    # By primary key and no more: neither an order nor a limit, which Django would have to write.
    row = next(iter(_results(alias).filter(pk=job_id)), None)
    if row is None or row[0] != backend:
        return None
    _, queue, handler, status, body, failed, worker, started, finished, value, output = row
    return Account(
        id=job_id,
        queue=queue,
        handler=handler,
        status=status,
        body=body,
        attempts=_attempts(alias, backend, job_id, failed),
        failed_attempts=failed,
        worker=worker,
        started_at=_microseconds(started),
        finished_at=_microseconds(finished),
        value_json=value,
        reason=reason_of(status, output),
        output=output,
    )


@cache
def _results(alias: str) -> QuerySet[JobResult, Any]:
    """Nothing but columns, made once: naming them costs a quarter of a look-up."""
    return JobResult.objects.using(alias).values_list(
        "backend", "queue", "handler", "status", "body", "attempts", "worker", "started_at",
        "finished_at", "value", "output",
    )  # fmt: skip


def _alive(alias: str, backend: str, job_id: str) -> Account | None:
    jobs = Job.objects.using(alias).filter(pk=job_id, backend=backend)
    row = jobs.values_list(
        "queue", "handler", "state", "body", "attempts", "worker", "leased_at"
    ).first()
    if row is None:
        return None
    queue, handler, state, body, failed, worker, leased_at = row
    runs = state == JobState.RUNNING
    return Account(
        id=job_id,
        queue=queue,
        handler=handler,
        status=JobState.label_of(state),
        body=body,
        attempts=_attempts(alias, backend, job_id, failed),
        failed_attempts=failed,
        worker=worker or "",
        started_at=leased_at if runs else None,
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
        attempts=_attempts(alias, backend, job_id, failed),
        failed_attempts=failed,
        finished_at=_microseconds(failed_at),
        reason=reason,
        error_type=error_type,
        error_message=message,
        traceback=traceback,
    )


def _attempts(alias: str, backend: str, job_id: str, failed: int) -> tuple[AttemptRecord, ...]:
    """The failed runs of a job; nothing is asked where there were none."""
    if not failed:
        return ()
    rows = JobAttempt.objects.using(alias).filter(job_id=job_id, backend=backend)
    told = rows.order_by("number", "id").values_list(
        "number", "outcome", "started_at", "finished_at", "error_type", "error_message",
        "traceback", "worker",
    )  # fmt: skip
    return tuple(
        AttemptRecord(
            number=number,
            outcome=outcome,
            started_at=_microseconds(started) or 0,
            finished_at=_microseconds(finished) or 0,
            error_type=error_type,
            error_message=message,
            traceback=traceback,
            worker=worker,
        )
        for number, outcome, started, finished, error_type, message, traceback, worker in told
    )


def _microseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    return from_datetime(moment if timezone.is_aware(moment) else timezone.make_aware(moment))
