"""Jobs run where they are enqueued, through the same rows and the same pipeline.

For tests, scripts and small sites. A failed attempt is repeated at once while retries
are left, a dead one is a dead letter, a result can be looked up. What would have to
wait is refused, unless ``OPTIONS["RUN_DELAYED_AT_ONCE"]`` says not to wait for it.
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
"""Takes a lease to its end. By its path: backends do not import the worker."""


class SyncBackend(DatabaseBackend):
    """Runs every job inside its enqueue."""

    runs_at_enqueue = True
    enqueues_in_parts = False  # a job of theirs would run in the transaction of all

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        self._notifies = False  # its jobs wait for no worker
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
        """Retries come at once, so that a job keeps its place whatever delay is asked for."""
        del delay_seconds
        return super().nack(lease, None, charge=charge, attempt=attempt)

    def learn(self, observations: Sequence[tuple[Lease, Evidence]]) -> None:
        """What is to run at once cannot be held back."""

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
