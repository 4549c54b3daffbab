"""Queues with a rate limit or a concurrency limit.

A claim from such a queue locks its meter, so that every claimed job is counted, and no other.
Limits that operators set while workers run take effect within half a second in all of them.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from django_jobs.backends.limits import QueueLimits, limits_of, report_unread
from django_jobs.backends.rates import Lateness, Rate, Usage
from django_jobs.backends.shared_breakers import LOOK_SECONDS
from django_jobs.clock import SECOND
from django_jobs.db.transactions import in_reading, in_transition
from django_jobs.ids import process_name
from django_jobs.models import Job, JobState, QueueMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from django_jobs.backends.base import Lease
    from django_jobs.backends.shared_breakers import Closed
    from django_jobs.db.clock import StoreClock

FULL_SECONDS = 0.1


class Meters:
    """The limited queues of one backend, as this process last saw them."""

    def __init__(self, alias: str, clock: StoreClock, backend: str, closed: Closed) -> None:
        self._closed = closed
        self._alias = alias
        self._clock = clock
        self._backend = backend
        self._set: dict[str, QueueLimits] = {}
        self._looked_at = float("-inf")
        self._lateness: defaultdict[str, Lateness] = defaultdict(Lateness)

    def rated(self, queues: Iterable[str]) -> set[str]:
        """Those of some queues with a rate limit."""
        self._look()
        limits = self._set
        return (
            {name for name in queues if name in limits and limits[name].rate} if limits else set()
        )

    def limits(self, queue: str) -> QueueLimits | None:
        """The limits of a queue, if it has any."""
        self._look()
        return self._set.get(queue)

    def limited(self, queues: Iterable[str] | None) -> list[str]:
        """Those of some queues, or of all, that have a limit."""
        self._look()
        return sorted(self._set if queues is None else set(queues).intersection(self._set))

    def lets_go(self, queue: str) -> bool:
        """Whether a queue's limits let jobs start now or later by themselves.

        They do not while the jobs of other workers have all its places.
        """
        limits = self.limits(queue)
        if limits is None or limits.concurrency is None:
            return True
        running = self._running(queue).filter(lease_expires__gt=self._clock.now())
        workers = in_reading(self._alias, lambda: list(running.values_list("worker", flat=True)))
        return len(workers) < limits.concurrency or process_name() in workers

    def _look(self) -> None:
        if not self._trusted_for():
            before, self._set = self._set, in_reading(self._alias, self._read)
            self._looked_at = time.monotonic()
            report_unread(self._backend, before, self._set)

    def _trusted_for(self) -> float:
        return max(self._looked_at + LOOK_SECONDS - time.monotonic(), 0.0)

    def _read(self) -> dict[str, QueueLimits]:
        return limits_of(self._alias, self._backend)

    def claim(
        self, queue: str, limits: QueueLimits, wanted: int, take: Callable[[int], list[Lease]]
    ) -> list[Lease]:
        """Claim as many as may start now, with ``take``."""

        def work(connection: BaseDatabaseWrapper) -> list[Lease]:
            meter, now = self._locked(queue), self._clock.read(connection)
            usage = Usage.read(limits.rate, meter.starts, now) if limits.rate else None
            places = self._places(queue, limits, now)
            count = min(wanted, places, wanted if usage is None else usage.free())
            if count <= 0:
                full = usage is None or places <= 0
                pause = FULL_SECONDS if full or usage is None else usage.free_in(now) / SECOND
                # No longer than the limits are cached, lest the two waits add up.
                self._closed.shut(queue, min(pause, self._trusted_for()), "rate-limited")
                return []
            leases = take(count)
            if usage is None or not leases:
                return leases
            # Read the clock again: on a busy machine the claim took its time.
            late, now_here = self._lateness[queue].allowed(usage.rate), time.monotonic()
            counted = self._clock.read(connection) + late
            self._save(meter, usage.added(len(leases), counted))
            start_by = now_here + late / SECOND
            return [lease._replace(start_by=start_by, counted=counted) for lease in leases]

        return in_transition(self._alias, work, sees_commits=True)

    def admitted(self, queue: str, leases: Sequence[Lease], *, of: Sequence[Lease]) -> None:
        """Of the leases just claimed (``of``) only these are about to start."""
        if not of[0].counted:
            return
        if leases:
            self._lateness[queue].claimed(leases[0])
        ids = {lease.id for lease in leases}
        if others := [lease for lease in of if lease.id not in ids]:
            self.return_starts(queue, others)

    def return_starts(self, queue: str, leases: Sequence[Lease]) -> None:
        """Take back the counted starts of leases that were claimed and did not start."""
        limits = self.limits(queue)
        if limits is None or (rate := limits.rate) is None:
            return
        self._lateness[queue].returned(rate, leases)
        counts = Counter(lease.counted for lease in leases if lease.counted)
        if counts:
            in_transition(
                self._alias,
                lambda connection: self._uncount(connection, queue, rate, counts),
                sees_commits=True,
            )

    def _uncount(
        self, connection: BaseDatabaseWrapper, queue: str, rate: Rate, counts: Mapping[int, int]
    ) -> None:
        meter, now = self._locked(queue), self._clock.read(connection)
        usage = Usage.read(rate, meter.starts, now)
        for counted, count in counts.items():
            usage = usage.without(count, counted)
        self._save(meter, usage)

    def _locked(self, queue: str) -> QueueMeter:
        meters = QueueMeter.objects.using(self._alias)
        mine = meters.filter(backend=self._backend, queue=queue)
        try:
            meter = mine.select_for_update().first()
        except (ValueError, TypeError, RecursionError):  # not readable as JSON
            mine.update(starts=None)
            meter = mine.select_for_update().first()
        if meter is None:
            new = QueueMeter(backend=self._backend, queue=queue)
            meters.bulk_create([new], ignore_conflicts=True)
            meter = mine.select_for_update().get()
        return meter

    def _save(self, meter: QueueMeter, usage: Usage) -> None:
        meter.starts = usage.to_store()
        meter.save(using=self._alias, update_fields=["starts"])

    def _places(self, queue: str, limits: QueueLimits, now: int) -> int:
        if limits.concurrency is None:
            return 1 << 30
        return limits.concurrency - self._running(queue).filter(lease_expires__gt=now).count()

    def _running(self, queue: str) -> QuerySet[Job]:
        jobs = Job.objects.using(self._alias)
        return jobs.filter(queue=queue, state=JobState.RUNNING, backend=self._backend)
