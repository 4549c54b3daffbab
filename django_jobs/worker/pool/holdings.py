"""The leases a worker holds, and when each has to be renewed. Used by two threads."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from django_jobs.backends.base import Settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_jobs.backends.base import Lease

RENEWALS_PER_LEASE = 3
LOOKS_PER_LEASE = 12
AHEAD_BYTES = 8 << 20  # with so much held nothing is fetched ahead; a claim may bring CLAIM_BYTES


class Holdings:
    """Leases by job, with their length and their end on our own clock."""

    def __init__(self, shortest_lease: float) -> None:
        self._held: dict[str, tuple[Lease, float, float]] = {}
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()
        self._every = shortest_lease / LOOKS_PER_LEASE
        self._look_at = 0.0
        self._bytes = 0

    def add(self, leases: Iterable[Lease], seconds: float, asked_at: float) -> None:
        with self._lock:
            for lease in leases:
                if known := self._held.get(lease.id):
                    self._bytes -= len(known[0].message.body)
                self._bytes += len(lease.message.body)
                self._held[lease.id] = (lease, seconds, asked_at + seconds)
                self._since[lease.id] = asked_at

    def drop(self, leases: Iterable[Lease]) -> None:
        """Renew leases no more: they ended."""
        with self._lock:
            for lease in leases:
                known = self._held.get(lease.id)
                if known is not None and known[0].token == lease.token:
                    self._bytes -= len(known[0].message.body)
                    del self._held[lease.id], self._since[lease.id]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_plenty(self) -> bool:
        """Whether what is held makes so many bytes that no more is to be fetched ahead."""
        return self._bytes >= AHEAD_BYTES

    def long_held(self, seconds: float) -> list[Lease]:
        """What has been held for so long, renewed or not."""
        since = time.monotonic() - seconds
        with self._lock:
            return [lease for job, (lease, _, _) in self._held.items() if self._since[job] <= since]

    def due(self) -> dict[float, list[Lease]]:
        """What has to be renewed now, by the length of the lease; looked at now and then."""
        now = time.monotonic()
        if now < self._look_at:
            return {}
        self._look_at = now + self._every
        due: dict[float, list[Lease]] = {}
        with self._lock:
            for lease, seconds, ends in self._held.values():
                if ends - now < seconds * (RENEWALS_PER_LEASE - 1) / RENEWALS_PER_LEASE:
                    due.setdefault(seconds, []).append(lease)
        return due

    def renewed(
        self, leases: Sequence[Lease], answers: Sequence[Settled], seconds: float, asked_at: float
    ) -> None:
        self.drop([x for x, answer in zip(leases, answers, strict=True) if answer is Settled.LOST])
        held = [x for x, answer in zip(leases, answers, strict=True) if answer is Settled.SETTLED]
        with self._lock:
            for lease in held:
                known = self._held.get(lease.id)
                if known is not None and known[0].token == lease.token:
                    self._held[lease.id] = (lease, seconds, asked_at + seconds)
