"""The database backend: the verbs of the contract, each a call into the file of its SQL."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.db import Error, connections
from django.db.models import Count, Min

from django_jobs.backends.base import Backend, Capabilities, Charge, OnConflict, QueueStats, Settled
from django_jobs.backends.database import settling
from django_jobs.backends.database.cancelling import remove_waiting
from django_jobs.backends.database.claiming import Claim
from django_jobs.backends.database.clock import StoreClock
from django_jobs.backends.database.inserting import insert
from django_jobs.backends.database.rows import ROW_FIELDS, glimpse_of
from django_jobs.backends.database.transactions import is_connection_lost
from django_jobs.clock import SECOND
from django_jobs.ids import parse_id
from django_jobs.models import Job, JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django_jobs.backends.base import (
        AttemptRecord,
        Enqueued,
        Failure,
        Glimpse,
        Lease,
        ResultRecord,
    )
    from django_jobs.wire.envelope import Outgoing

LONGEST_NAP_SECONDS = 60.0


class DatabaseBackend(Backend):
    """Jobs in a table of the database named by ``OPTIONS["DATABASE"]``."""

    capabilities = Capabilities(
        delay=True,
        priority=True,
        transactional_enqueue=True,
        renew=True,
        batch=True,
        results=True,
        peek=True,
        cancel=True,
        unique=True,
    )

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        self.database: str = self.options.get("DATABASE", "default")
        self.clock = StoreClock()

    def enqueue(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        if not outgoing:
            return []
        return insert(self.database, self.clock, outgoing, on_conflict)

    def fetch(self, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Lease]:
        claim = Claim(
            self.database,
            self.clock,
            backend=self.alias,
            limit=limit,
            lease_seconds=lease_seconds,
        )
        for queue in queues:
            if leases := claim.from_queue(queue):
                return leases
        return []

    def ack(
        self, leases: Sequence[Lease], results: Mapping[str, ResultRecord] | None = None
    ) -> list[Settled]:
        return _answered(
            lambda: settling.ack(self.database, self.clock, leases, results or {}), len(leases)
        )

    def nack(
        self,
        lease: Lease,
        delay_seconds: float | None = None,
        *,
        charge: Charge = Charge.ATTEMPT,
        attempt: AttemptRecord | None = None,
    ) -> Settled:
        def work() -> list[Settled]:
            return [
                settling.nack(self.database, self.clock, lease, delay_seconds, charge, attempt)
            ]

        return _answered(work, 1)[0]

    def abandon(self, lease: Lease, failure: Failure) -> Settled:
        def work() -> list[Settled]:
            return [settling.abandon(self.database, self.clock, lease, failure)]

        return _answered(work, 1)[0]

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Settled]:
        return _answered(
            lambda: settling.renew(self.database, self.clock, leases, lease_seconds), len(leases)
        )

    def reap_expired(self, queue: str | None = None, limit: int = 1000) -> int:
        return settling.reap_expired(self.database, self.clock, self.alias, queue, limit)

    def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Sleep until the next job of the queues is due, at the longest for the timeout."""
        waiting = Job.objects.using(self.database).filter(
            queue__in=queues, state__in=(JobState.SCHEDULED, JobState.READY)
        )
        soonest = waiting.aggregate(due=Min("due"))["due"]
        if soonest is not None:
            now = self.clock.read(connections[self.database])
            timeout = min(timeout, max(soonest - now, 0) / SECOND)
        time.sleep(min(max(timeout, 0.0), LONGEST_NAP_SECONDS))

    def stats(self, queue: str) -> QueueStats:
        jobs = Job.objects.using(self.database).filter(queue=queue, backend=self.alias)
        counted = jobs.order_by().values("state").annotate(jobs=Count("pk"), oldest=Min("due"))
        found = {row["state"]: row for row in counted}
        ready = found.get(JobState.READY)
        age = 0.0
        if ready is not None:
            now = self.clock.read(connections[self.database])
            age = max(now - ready["oldest"], 0) / SECOND
        return QueueStats(
            ready=ready["jobs"] if ready else 0,
            scheduled=found.get(JobState.SCHEDULED, {}).get("jobs", 0),
            running=found.get(JobState.RUNNING, {}).get("jobs", 0),
            suspect=jobs.filter(suspect=True).count(),
            oldest_ready_seconds=age,
        )

    def peek(self, queue: str, limit: int = 20) -> list[Glimpse]:
        jobs = Job.objects.using(self.database).filter(queue=queue, backend=self.alias)
        waiting = [
            *jobs.filter(state=JobState.READY).order_by("rank", "due", "id").values_list(
                *ROW_FIELDS
            )[:limit],
            *jobs.filter(state=JobState.SCHEDULED).order_by("due", "rank", "id").values_list(
                *ROW_FIELDS
            )[:limit],
        ]
        return [glimpse_of(row) for row in waiting[:limit]]

    def find(self, job_id: str) -> Glimpse | None:
        key = parse_id(job_id)
        if key is None:
            return None
        row = Job.objects.using(self.database).filter(pk=key).values_list(*ROW_FIELDS).first()
        return None if row is None else glimpse_of(row)

    def cancel(self, job_id: str) -> bool:
        key = parse_id(job_id)
        return key is not None and remove_waiting(self.database, self.clock, key, "cancelled")


def _answered(work: Callable[[], list[Settled]], count: int) -> list[Settled]:
    """The answers of a settle, or "unknown" when the connection broke before they came."""
    try:
        return work()
    except Error as error:
        if not is_connection_lost(error):
            raise
        return [Settled.UNKNOWN] * count
