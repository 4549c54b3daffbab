"""Jobs run where they are enqueued, through the same rows and the same pipeline.

For tests, scripts and small sites. A failed attempt is repeated at once while retries
are left, a dead one is a dead letter, a result can be looked up. What would have to
wait is refused, unless ``OPTIONS["RUN_DELAYED_AT_ONCE"]`` says not to wait for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Charge, Failure, OnConflict, Settled
from django_jobs.backends.database import DatabaseBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django_jobs.backends.base import AttemptRecord, Enqueued, Lease
    from django_jobs.wire.envelope import Outgoing

SYNC_LEASE_SECONDS = 3600.0

run_lease: Callable[[SyncBackend, Lease, float], object] | None = None
"""Takes a lease to its end. Set when the app is ready: backends do not import the worker."""


class SyncBackend(DatabaseBackend):
    """Runs every job inside its enqueue."""

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        self.runs_delayed = bool(self.options.get("RUN_DELAYED_AT_ONCE", False))
        self.capabilities = replace(type(self).capabilities, delay=self.runs_delayed)

    def enqueue(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        stored = super().enqueue(outgoing, on_conflict=on_conflict)
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
        """Retries come at once; a snooze would have to wait, and ends the job here."""
        if charge is Charge.NOTHING and delay_seconds and not self.runs_delayed:
            told = "a job that wants to wait cannot do so on a backend that runs it at once"
            return self.abandon(lease, Failure(reason="cannot-wait", error_message=told))
        delay = 0.0 if delay_seconds else delay_seconds
        return super().nack(lease, delay, charge=charge, attempt=attempt)

    def _run(self, job_id: str) -> None:
        if run_lease is None:
            raise RuntimeError("the sync backend was used before Django's app registry was ready")
        while leases := self._claim(1, SYNC_LEASE_SECONDS).only(job_id):
            run_lease(self, leases[0], SYNC_LEASE_SECONDS)
