"""Cancelling jobs: a waiting job is removed at once, a running one is asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections, transaction

from django_jobs.backends.base import ResultRecord
from django_jobs.backends.database.keys import COLUMNS, Keys, no_hints, wake
from django_jobs.backends.database.rows import ROW_FIELDS, lease_of
from django_jobs.backends.ended_jobs import results_of
from django_jobs.db.transactions import awaits_commit, in_reading, in_transition
from django_jobs.models import Job, JobResult, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Lease
    from django_jobs.backends.database.keys import Notify
    from django_jobs.db.clock import StoreClock


def remove_waiting(
    alias: str, clock: StoreClock, job_id: str, reason: str, notify: Notify = no_hints
) -> bool:
    """Cancel a job that is scheduled, ready or blocked, and record that as its result.

    If it had been woken for a free place of its keys, the place goes to the next in line. In a
    transaction of the caller this happens after the commit: the keys would stay locked until
    then, and every worker with a job of the same keys would wait.
    """
    jobs = Job.objects.using(alias).filter(pk=job_id)
    stored_keys = in_reading(alias, lambda: jobs.values_list(*COLUMNS).first())
    shared = sorted({key for key in stored_keys or () if key})
    later = bool(shared) and awaits_commit(connections[alias])

    def work(connection: BaseDatabaseWrapper) -> bool:
        keys = Keys(alias, clock, [] if later else shared, notify)
        waiting = jobs.exclude(state=JobState.RUNNING)
        row = waiting.select_for_update().values_list(*ROW_FIELDS).first()
        if row is None:
            return False
        now = clock.read(connection)
        lease = lease_of(row, token="", expires_at=0)
        cancelled = ResultRecord(status="cancelled", output=reason, finished_at=now)
        results = results_of([lease], {lease.id: cancelled}, now)
        JobResult.objects.using(alias).bulk_create(results, ignore_conflicts=True)
        jobs.delete()
        keys.wake()
        return True

    removed = in_transition(alias, work, sees_commits=bool(shared))
    if removed and later:
        transaction.on_commit(lambda: wake(alias, clock, shared, notify), using=alias, robust=True)
    return removed


def ask_to_stop(alias: str, backend: str, job_id: str) -> bool:
    """Mark a running job's row as asked to stop; False if it does not run, or is marked already."""
    running = Job.objects.using(alias).filter(pk=job_id, backend=backend, state=JobState.RUNNING)
    asked = running.filter(cancel_requested=False)
    return in_transition(alias, lambda _: bool(asked.update(cancel_requested=True)))


def asked_to_stop(alias: str, leases: Sequence[Lease]) -> set[str]:
    """The ids of leases whose job was asked to stop."""
    rows = Job.objects.using(alias).filter(
        pk__in=[lease.id for lease in leases], cancel_requested=True
    )
    return in_reading(alias, lambda: {str(pk) for pk in rows.values_list("pk", flat=True)})
