"""Ending jobs on somebody's word: at once what waits, by asking what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.backends.base import ResultRecord
from django_jobs.backends.database.rows import ROW_FIELDS, lease_of, results_of
from django_jobs.backends.database.transactions import in_reading, in_transition
from django_jobs.models import Job, JobResult, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Lease
    from django_jobs.backends.database.clock import StoreClock


def remove_waiting(alias: str, clock: StoreClock, job_id: str, reason: str) -> bool:
    """Cancel a job that is scheduled or ready, keeping the fact as its result."""

    def work(connection: BaseDatabaseWrapper) -> bool:
        waiting = Job.objects.using(connection.alias).filter(pk=job_id)
        waiting = waiting.exclude(state=JobState.RUNNING)
        row = waiting.select_for_update().values_list(*ROW_FIELDS).first()
        if row is None:
            return False
        now = clock.read(connection)
        lease = lease_of(row, token="", expires_at=0)
        cancelled = ResultRecord(status="cancelled", output=reason, finished_at=now)
        results = results_of([lease], {lease.id: cancelled}, now)
        JobResult.objects.using(connection.alias).bulk_create(results, ignore_conflicts=True)
        Job.objects.using(connection.alias).filter(pk=job_id).delete()
        return True

    return in_transition(alias, work)


def ask_to_stop(alias: str, backend: str, job_id: str) -> bool:
    """Note in a running job's row that it is to stop, once."""
    running = Job.objects.using(alias).filter(pk=job_id, backend=backend, state=JobState.RUNNING)
    asked = running.filter(cancel_requested=False)
    return in_transition(alias, lambda _: bool(asked.update(cancel_requested=True)))


def asked_to_stop(alias: str, leases: Sequence[Lease]) -> set[str]:
    """The ids of leases whose row says that the job is to stop."""
    rows = Job.objects.using(alias).filter(
        pk__in=[lease.id for lease in leases], cancel_requested=True
    )
    return in_reading(alias, lambda: {str(pk) for pk in rows.values_list("pk", flat=True)})
