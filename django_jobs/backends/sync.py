"""The sync backend runs jobs inside their enqueue, with the same rows and the same pipeline.

For tests, scripts and small sites. A failed attempt is repeated at once while retries are left, a
dead job becomes a dead letter, results can be read. Delayed jobs are refused, unless
``OPTIONS["RUN_DELAYED_AT_ONCE"]`` is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Charge, Failure, OnConflict, Settled
from django_jobs.backends.database import DatabaseBackend
from django_jobs.lazy import LazyFunction
from django_jobs.telemetry.events import JobDied, emit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_jobs.backends.base import AttemptRecord, Enqueued, Evidence, Lease
    from django_jobs.wire.envelope import Outgoing

SYNC_LEASE_SECONDS = 3600.0
MOST_SNOOZES = 100

_run_lease = LazyFunction("django_jobs.worker.build.run_lease")
"""Runs a leased job. A dotted path, because backends do not import the worker."""


class SyncBackend(DatabaseBackend):
    """Runs every job inside its enqueue."""

    runs_at_enqueue = True
    enqueues_in_parts = False  # a job would run in the transaction of the whole batch

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        self._notifies = False  # no worker waits for its jobs
        self.runs_delayed = bool(self.options.get("RUN_DELAYED_AT_ONCE", False))
        self.capabilities = type(self).capabilities._replace(
            delay=self.runs_delayed, breakers=False
        )

    def enqueue(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        return self._run_new(super().enqueue(outgoing, on_conflict=on_conflict))

    def push(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        return self._run_new(super().push(outgoing, on_conflict=on_conflict))

    def _run_new(self, stored: list[Enqueued]) -> list[Enqueued]:
        for job_id, created in stored:
            if created:
                self._run(job_id)
        return stored

    def nack(
        self,
        lease: Lease,
        delay_seconds: float | None = None,
        *,
        charge: Charge = Charge.ATTEMPT,
        attempt: AttemptRecord | None = None,
    ) -> Settled:
        """Return the job to its place without a delay, so that retries come at once."""
        del delay_seconds
        return super().nack(lease, None, charge=charge, attempt=attempt)

    def count_evidence(self, observations: Sequence[tuple[Lease, Evidence]]) -> None:
        """Do nothing: breakers cannot hold back jobs that run at once."""

    def _run(self, job_id: str) -> None:
        snoozes = 0
        while leases := self._claim(1, SYNC_LEASE_SECONDS).only(job_id):
            if snoozes >= MOST_SNOOZES:
                self._give_up(leases[0], f"it asked {snoozes} times to be run later")
                return
            report = _run_lease(self, leases[0], SYNC_LEASE_SECONDS)
            snoozes += getattr(report, "status", "") == "snoozed"

    def _give_up(self, lease: Lease, why: str) -> None:
        self.abandon(lease, Failure(reason="cannot-wait", error_message=why))
        about = {
            "job_id": lease.id,
            "queue": lease.queue,
            "handler": lease.message.index["handler"],
        }
        emit(JobDied(**about, reason="cannot-wait", error_message=why))
