"""Withdraw a job from the outbox, so that it never reaches its backend.

A relay notes in its lease which rows it is about to push, in the transaction that reads them. A
withdrawal locks that lease. So a job is either withdrawn or pushed, never both, unless a process
hangs inside the push for longer than its lease.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from django.db import connections
from django.db.models import F

from django_jobs.backends.base import Lease, ResultRecord, ids_known_to
from django_jobs.backends.ended_jobs import fit, results_of
from django_jobs.db.clock import StoreClock, for_people
from django_jobs.models import JobResult, OutboxJob, RelayLease
from django_jobs.outbox.lookup import find, message_of, plain_index
from django_jobs.outbox.relay import create_lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from django_jobs.backends.base import Backend

Withdrawn = Literal["cancelled", "moving", "gone"]
"""``moving``: a relay is pushing the job, or tried to and got no answer. ``gone``: the job is not
in the outbox, or its backend has it already."""

_SHOWN = {"name": "name", "trace_id": "traceId", "tenant": "tenant"}


def withdraw(home: str, backend: Backend, job_id: str) -> Withdrawn:
    """End a job that waits in the outbox, in the caller's transaction on ``home``.

    Its result records that it was cancelled. The backend is asked only if a push may have
    succeeded without an answer.
    """
    row = find(backend.alias, job_id)
    if row is None:
        return "gone"
    connection, clock = connections[home], StoreClock()
    # First without a lock: while a relay pushes the job, there is nothing to wait for.
    if _is_moving(_lease_of(home, row), row, clock.read(connection)):
        return "moving"
    lease = _locked(home, row)
    row = OutboxJob.objects.using(home).select_for_update().filter(pk=row.pk).first()
    if row is None:
        return "gone"
    if _is_moving(lease, row, clock.read(connection)):
        return "moving"
    tried = row.refusals or row.put_off_since is not None  # perhaps without an answer
    if tried or lease.moving_to >= row.pk:
        try:
            if ids_known_to(backend, {job_id: row.queue}):
                return "gone"
        except Exception:  # noqa: BLE001 - without an answer, the backend may have it
            return "moving"
    _end(home, connection, clock, row)
    return "cancelled"


def _lease_of(home: str, row: OutboxJob) -> RelayLease | None:
    return _leases(home, row).first()


def _leases(home: str, row: OutboxJob) -> QuerySet[RelayLease]:
    return RelayLease.objects.using(home).filter(backend=row.backend, queue=row.queue)


def _is_moving(lease: RelayLease | None, row: OutboxJob, now: int) -> bool:
    return lease is not None and lease.moving_to >= row.pk and lease.expires > now


def _locked(home: str, row: OutboxJob) -> RelayLease:
    """Lock the lease of the row's queue, so that no relay can take it until the caller commits.

    The update changes no value, but makes a relay with an older snapshot start again.
    """
    leases = _leases(home, row)
    if not leases.update(moving_to=F("moving_to")):
        create_lease(home, row.backend, row.queue)
        leases.update(moving_to=F("moving_to"))
    return leases.select_for_update().get()


def _end(home: str, connection: BaseDatabaseWrapper, clock: StoreClock, row: OutboxJob) -> None:
    index = {**plain_index(row), **_shown_fields(row.body)}
    made = for_people(row.created)
    job_id = str(row.job_id)
    lease = Lease(job_id, row.queue, "", 0, message_of(row, index), created_at=made)
    now = clock.read(connection)
    record = ResultRecord(status="cancelled", output="cancelled", finished_at=now)
    results = results_of([lease], {job_id: record}, now)
    for result in results:
        fit(result)
    JobResult.objects.using(home).bulk_create(results, ignore_conflicts=True)
    OutboxJob.objects.using(home).filter(pk=row.pk).delete()


def _shown_fields(body: str) -> Mapping[str, Any]:
    """Fields of the body to show to people. The body is not verified, and never acted on."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return {}
    shown = {name: fields.get(wire) for name, wire in _SHOWN.items()}
    return {name: value for name, value in shown.items() if isinstance(value, str)}
