"""The thread that talks to the store, so that the supervisor never has to.

It does one thing after the other, the most urgent first: renew what would end, settle
whatever has finished since the last round trip, fetch what the children can take, keep
house. If the store hangs, this thread hangs, and nothing else.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.backends.base import Settled
from django_jobs.clock import SystemClock, to_microseconds
from django_jobs.execution.outcome import Interrupted, Succeeded
from django_jobs.worker.batch import settle_many
from django_jobs.worker.housekeeping import Housekeeping
from django_jobs.worker.pool.messages import run_of
from django_jobs.worker.presence import Presence
from django_jobs.worker.settle import Verdict
from django_jobs.worker.store import Outage, Store

if TYPE_CHECKING:
    from django_jobs.backends.base import Backend, Lease
    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.asking import Asker
    from django_jobs.worker.queues import QueueOrder
    from django_jobs.worker.settle import Run

RENEWALS_PER_LEASE = 3
SETTLE_AT_ONCE = 500
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Leases, and the moment on our own clock by which they certainly still hold."""

    leases: list[Lease]
    lease_seconds: float
    asked_at: float


@dataclass(frozen=True, slots=True)
class Done:
    """A settled delivery."""

    run: Run
    outcome: Outcome
    verdict: Verdict

    @property
    def uncharged(self) -> bool:
        """Whether it was only given back for the worker's sake."""
        return isinstance(self.outcome, Interrupted)


def by_child(lease: Lease, status: str, seconds: float, worker: str) -> Done:
    """A delivery that its child settled itself, inside the handler's transaction."""
    header, now = lease.message.header, _clock.now()
    times = (now - to_microseconds(seconds), now)
    run = run_of(lease, None, (header.attempts, header.crashes), times, worker)
    answer = Settled.LOST if status == "lease-lost" else Settled.SETTLED
    return Done(run, Succeeded(), Verdict(status, answer))


@dataclass(frozen=True, slots=True)
class Renewed:
    """What a renewal said of each lease, by id."""

    answers: dict[str, Settled]
    asked_at: float


@dataclass
class Wishes:
    """What the supervisor wants of the store; written under the condition's lock."""

    settle: deque[tuple[Run, Outcome]] = field(default_factory=deque)
    held: dict[str, tuple[Lease, float, float]] = field(default_factory=dict)
    fetch: int = 0
    end: bool = False


class StoreThread:
    """Store I/O of one worker."""

    def __init__(
        self,
        backend: Backend,
        asker: Asker,
        queues: QueueOrder,
        *,
        lease_seconds: float,
        poll_interval: float,
        wake: int,
    ) -> None:
        self.wishes = Wishes()
        self.changed = threading.Condition()
        self.news: deque[Fetched | Done | Renewed] = deque()
        self._backend = backend
        self._asker = asker
        self._queues = queues
        self._lease_seconds = lease_seconds
        self._poll_interval = poll_interval
        self._wake = wake
        self._store = Store(Outage(backend.alias), lambda: self.wishes.end)
        self._house = Housekeeping(backend, lease_seconds)
        self._presence = Presence(backend, str(queues))
        self._empty_until = 0.0
        self.empty = False
        self.thread = threading.Thread(target=self._run, name="django_jobs-store", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def forget(self, job_id: str) -> None:
        """Renew a lease no more: it ended elsewhere."""
        with self.changed:
            self.wishes.held.pop(job_id, None)

    def patience(self) -> float:
        """How long an ending worker waits for what it is still told of the store."""
        return self._lease_seconds / RENEWALS_PER_LEASE

    def tell(self, news: Fetched | Done | Renewed) -> None:
        self.news.append(news)
        os.write(self._wake, b"!")

    def _run(self) -> None:
        try:
            while not self._is_over():
                if not self._turn():
                    self._wait()
            self._presence.end()
        finally:
            connections.close_all()
            os.write(self._wake, b"!")

    def _is_over(self) -> bool:
        return self.wishes.end and not self.wishes.settle

    def _turn(self) -> bool:
        """Do what is most urgent; False when there was nothing."""
        if due := self._due_renewals():
            self._store.call(lambda: self._renew(due))
            return True
        if self.wishes.settle:
            self._settle()
            return True
        if self.wishes.end:
            return False
        self._store.call(self._keep_house)
        wanted = self.wishes.fetch
        if wanted > 0 and time.monotonic() >= self._empty_until:
            self._store.call(lambda: self._fetch(wanted))
            return True
        return False

    def _keep_house(self) -> None:
        self._presence.tell()
        self._house.step()

    def _fetch(self, wanted: int) -> None:
        asked_at = time.monotonic()
        leases = self._backend.fetch(self._queues.next(), wanted, self._lease_seconds)
        if leases:
            with self.changed:
                for lease in leases:
                    ends = asked_at + self._lease_seconds
                    self.wishes.held[lease.id] = (lease, self._lease_seconds, ends)
                self.wishes.fetch -= len(leases)
            self.empty = False
            self.tell(Fetched(leases, self._lease_seconds, asked_at))
            return
        due_in = self._backend.next_due_in(self._queues.next())
        pause = self._poll_interval if due_in is None else min(due_in, self._poll_interval)
        self._empty_until = time.monotonic() + pause
        if not self.empty:
            self.empty = True
            os.write(self._wake, b"!")

    def _settle(self) -> None:
        """Everything that finished since the last round trip, in as few steps as can be."""
        batch: list[tuple[Run, Outcome]] = []
        while self.wishes.settle and len(batch) < SETTLE_AT_ONCE:
            batch.append(self.wishes.settle.popleft())
        verdicts = settle_many(self._asker, batch, self._lease_seconds)
        with self.changed:
            for run, _ in batch:
                self.wishes.held.pop(run.lease.id, None)
            # What ended may have made others due: jobs it enqueued, or itself again.
            self.empty, self._empty_until = False, 0.0
        for (run, outcome), verdict in zip(batch, verdicts, strict=True):
            self.news.append(Done(run, outcome, verdict))
        os.write(self._wake, b"!")

    def _due_renewals(self) -> list[Lease]:
        soon = time.monotonic()
        with self.changed:
            return [
                lease
                for lease, seconds, ends in self.wishes.held.values()
                if ends - soon < seconds * (RENEWALS_PER_LEASE - 1) / RENEWALS_PER_LEASE
            ]

    def _renew(self, leases: list[Lease]) -> None:
        asked_at = time.monotonic()
        answers = self._backend.renew(leases, self._lease_seconds)
        with self.changed:
            for lease, answer in zip(leases, answers, strict=True):
                known = self.wishes.held.get(lease.id)
                if known is None or known[0].token != lease.token:
                    continue
                if answer is Settled.LOST:
                    del self.wishes.held[lease.id]
                elif answer is Settled.SETTLED:
                    ends = asked_at + self._lease_seconds
                    self.wishes.held[lease.id] = (lease, self._lease_seconds, ends)
        told = {lease.id: answer for lease, answer in zip(leases, answers, strict=True)}
        self.tell(Renewed(told, asked_at))

    def _wait(self) -> None:
        with self.changed:
            if self.wishes.settle or self.wishes.end:
                return
            pause = self._lease_seconds / RENEWALS_PER_LEASE / 2
            if self.wishes.fetch > 0:
                pause = min(pause, max(self._empty_until - time.monotonic(), 0.0))
            self.changed.wait(min(pause, self._poll_interval) if pause > 0 else 0.0)


def wake_pipe() -> tuple[int, int]:
    """A pipe whose reading end becomes ready when the store thread has news."""
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    os.set_blocking(writes, False)
    return reads, writes


def drained(descriptor: int) -> None:
    """Empty a wake pipe."""
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass
