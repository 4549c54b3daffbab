"""The contract in its simplest form: jobs in a dict, every verb under one lock.

Nothing outlives the process, so this is for tests and readers. Where the contract's text leaves
a question open, this backend is the reference, and the others follow it.

An instance owns its jobs: threads that are to meet must share the instance.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from django_jobs.backends import base
from django_jobs.backends.base import Charge, Enqueued, Lease, OnConflict, ResultRecord, Settled
from django_jobs.backends.crash_events import crash_delay, emit_crash_of
from django_jobs.backends.values import CLAIM_BYTES, reason_of
from django_jobs.clock import SECOND, Clock, SystemClock, to_microseconds
from django_jobs.exceptions import DuplicateJob
from django_jobs.wire.envelope import Header, Message, Outgoing, index_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SCHEDULED, READY, RUNNING = "scheduled", "ready", "running"


class Dead(NamedTuple):
    """A dead letter: the message as it was when it was given up, and why."""

    message: Message
    failure: base.Failure


@dataclass(slots=True)
class MemoryJob:
    """A live job: its immutable body, its index columns and its state."""

    body: str
    signature: str
    key_id: str
    index: dict[str, Any]
    due: int
    state: str = READY
    put_off_since: int | None = None
    attempts: int = 0
    deliveries: int = 0
    crashes: int = 0
    suspect: bool = False
    token: str | None = None
    expires_at: int | None = None
    reaped_token: str | None = None
    reap_charged: bool = False
    fence: int | None = None
    done_by: str = ""

    @property
    def id(self) -> str:
        return str(self.index["id"])

    @property
    def queue(self) -> str:
        return str(self.index["queue"])

    def message(self) -> Message:
        counters = self.attempts, self.deliveries, self.crashes
        header = Header(*counters, self.due, self.put_off_since).bounded()
        return Message(self.body, self.signature, self.key_id, header, dict(self.index))


def has_place(job: MemoryJob, company: Sequence[MemoryJob]) -> bool:
    """Whether the keys of a job let it run beside others. Done work needs no place."""
    if job.done_by:
        return True
    holders = [other for other in company if not other.done_by]
    lock, once = job.index["concurrency_key"], job.index["idempotency_key"]
    taken = sum(other.index["concurrency_key"] == lock for other in holders)
    if lock is not None and taken >= job.index["concurrency"]:
        return False
    return once is None or all(other.index["idempotency_key"] != once for other in holders)


_CAN = ("delay", "priority", "renew", "batch", "results", "peek", "cancel", "unique", "keys")
DONE_SECONDS = 86_400.0


class MemoryBackend(base.RemembersEnded, base.Inspects, base.Cancels):
    """Keeps jobs in this process. ``OPTIONS["CLOCK"]`` is the clock it judges time by."""

    ends_with_process = True
    trusted_store = True
    capabilities = base.Capabilities(**dict.fromkeys(_CAN, True))

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        self.clock: Clock = self.options.get("CLOCK") or SystemClock()
        self.jobs: dict[str, MemoryJob] = {}
        self.dead: dict[str, Dead] = {}
        self.results: dict[str, ResultRecord] = {}
        self.attempts: dict[str, list[base.AttemptRecord]] = {}
        self.done: dict[str, tuple[str, int]] = {}
        self.ended: set[str] = set()
        self._replaced: dict[str, str] = {}
        self._fences = count(1)
        self._lock = threading.Lock()

    def enqueue(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        with self._lock:
            return self._store_all(outgoing, on_conflict)

    def push(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        with self._lock:
            over = {message.id for message in outgoing if message.id in self.ended}
            left = [message for message in outgoing if message.id not in over]
            stored = iter(self._store_all(left, on_conflict))
            return [
                Enqueued(message.id, created=False) if message.id in over else next(stored)
                for message in outgoing
            ]

    def known_ids(self, jobs: Mapping[str, str]) -> set[str]:
        with self._lock:
            return {job_id for job_id in jobs if job_id in self.jobs or job_id in self.ended}

    def _store_all(self, outgoing: Sequence[Outgoing], on_conflict: OnConflict) -> list[Enqueued]:
        before = dict(self.jobs)
        self._replaced = {}
        try:
            stored = [self._store(message, on_conflict) for message in outgoing]
        except DuplicateJob:
            self.jobs = before
            raise
        for job_id, new in self._replaced.items():
            self._keep_cancelled(job_id, f"replaced by {new}")
        return stored

    def _store(self, new: Outgoing, on_conflict: OnConflict) -> Enqueued:
        if new.id in self.jobs:
            return Enqueued(new.id, created=False)
        key = new.terms.unique
        if key is not None and (holder := self._holder(key)):
            if on_conflict is OnConflict.RETURN:
                return Enqueued(holder.id, created=False)
            if on_conflict is OnConflict.RAISE or holder.state == RUNNING:
                raise DuplicateJob(new.terms.unique_key or "", holder.id)
            del self.jobs[holder.id]
            self._replaced[holder.id] = new.id
        now = self.clock.now()
        due = new.terms.schedule
        if due is None:
            due = now + to_microseconds(new.terms.delay or 0)
        job = MemoryJob(new.body, new.signature, new.key_id, index_of(new.id, new.terms), due)
        self.jobs[new.id] = self._placed(job, now)
        return Enqueued(new.id, created=True)

    def _holder(self, key: str) -> MemoryJob | None:
        return next((job for job in self.jobs.values() if job.index["unique_key"] == key), None)

    def _placed(self, job: MemoryJob, now: int) -> MemoryJob:
        """Make a job scheduled or ready, depending on its due time."""
        job.state = SCHEDULED if job.due > now else READY
        job.token = job.expires_at = None
        return job

    def fetch(self, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Lease]:
        with self._lock:
            expires_at = self.clock.now() + to_microseconds(lease_seconds)
            for queue in queues:
                if jobs := self._next(self._ready(queue), limit):
                    token = self._token()
                    return [self._lease(job, token, expires_at) for job in jobs]
            return []

    def _ready(self, queue: str) -> list[MemoryJob]:
        """A queue's due jobs in order, including scheduled ones that are due now."""
        now = self.clock.now()
        due = [job for job in self._of(queue) if job.state != RUNNING and job.due <= now]
        return sorted((self._placed(job, now) for job in due), key=self._order)

    def _order(self, job: MemoryJob) -> tuple[int, int, str]:
        return (job.index["rank"], job.due, job.id)

    def _next(self, ready: list[MemoryJob], limit: int) -> list[MemoryJob]:
        if ready and ready[0].suspect:
            return [job for job in ready[:1] if limit > 0 and self._has_place(job, [])]
        chosen: list[MemoryJob] = []
        for job in takewhile(lambda job: not job.suspect, ready):
            if sum(len(taken.body) for taken in chosen) >= CLAIM_BYTES:
                break
            if len(chosen) < limit and self._has_place(job, chosen):
                chosen.append(job)
        return chosen

    def _has_place(self, job: MemoryJob, chosen: Sequence[MemoryJob]) -> bool:
        now = self.clock.now()
        done_by, until = self.done.get(job.index["idempotency_key"], ("", 0))
        job.done_by = done_by if until > now else ""
        running = [other for other in self.jobs.values() if other.state == RUNNING]
        return has_place(job, [*running, *chosen])

    def _token(self) -> str:
        return uuid4().hex

    def _lease(self, job: MemoryJob, token: str, expires_at: int) -> Lease:
        job.state, job.token, job.expires_at = RUNNING, token, expires_at
        job.deliveries += 1
        keyed = job.index["concurrency_key"] or job.index["idempotency_key"]
        job.fence = next(self._fences) if keyed and not job.done_by else None
        message = job.message()
        return Lease(
            job.id, job.queue, token, expires_at, message, job.suspect,
            fence=job.fence, done_by=job.done_by,
        )  # fmt: skip

    def _held(self, lease: Lease) -> MemoryJob | None:
        """The job of a lease that still holds it; an expired lease does until it is reaped."""
        job = self.jobs.get(lease.id)
        return job if job and job.state == RUNNING and job.token == lease.token else None

    def ack(
        self,
        leases: Sequence[Lease],
        results: Mapping[str, ResultRecord] | None = None,
        *,
        undone: Collection[str] = (),
    ) -> list[Settled]:
        with self._lock:
            return [self._end(lease, results or {}, undone) for lease in leases]

    def _end(
        self, lease: Lease, results: Mapping[str, ResultRecord], undone: Collection[str]
    ) -> Settled:
        job = self._held(lease)
        if job is None:
            return Settled.LOST
        self._forget(job)
        if job.index["idempotency_key"] and not job.done_by and job.id not in undone:
            until = self.clock.now() + to_microseconds(DONE_SECONDS)
            self.done[job.index["idempotency_key"]] = (job.id, until)
        if job.id in results:
            self.results[job.id] = results[job.id]
        return Settled.SETTLED

    def _forget(self, job: MemoryJob) -> None:
        del self.jobs[job.id]
        self.ended.add(job.id)

    def nack(
        self,
        lease: Lease,
        delay_seconds: float | None = None,
        *,
        charge: Charge = Charge.ATTEMPT,
        attempt: base.AttemptRecord | None = None,
    ) -> Settled:
        with self._lock:
            job = self._held(lease)
            if job is None:
                if charge is Charge.NOTHING:
                    self._take_loss_back(lease)
                return Settled.LOST
            now = self.clock.now()
            if delay_seconds is not None:
                job.due = max(now + to_microseconds(max(delay_seconds, 0)), job.due)
            self._charge(job, charge, attempt)
            if charge is not Charge.NOTHING or delay_seconds is not None:
                job.suspect = charge in {Charge.CRASH, Charge.SUSPICION}
                put_off = charge is Charge.PUT_OFF
                job.put_off_since = self._put_off_since(job, now) if put_off else None
                job.reaped_token = None  # this lease's outcome counts, not an earlier loss
            self._placed(job, now)
            return Settled.SETTLED

    def _put_off_since(self, job: MemoryJob, now: int) -> int:
        return now if job.put_off_since is None else min(job.put_off_since, now)

    def _take_loss_back(self, lease: Lease) -> None:
        """Undo what reaping made of this loss: its worker is alive, so there was no crash."""
        job = self.jobs.get(lease.id)
        if job is None or job.reaped_token != lease.token:
            return
        job.crashes -= job.reap_charged
        job.suspect = job.reap_charged  # one that was a suspect before stays one
        job.reaped_token = None

    def _charge(self, job: MemoryJob, charge: Charge, attempt: base.AttemptRecord | None) -> None:
        job.attempts += charge is Charge.ATTEMPT
        job.crashes += charge is Charge.CRASH
        if attempt is not None:
            self.attempts.setdefault(job.id, []).append(attempt)

    def abandon(self, lease: Lease, failure: base.Failure) -> Settled:
        with self._lock:
            job = self._held(lease)
            if job is None:
                return Settled.LOST
            self._charge(job, failure.charge, failure.attempt)
            self.dead.setdefault(job.id, Dead(job.message(), failure))
            self._forget(job)
            return Settled.SETTLED

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Settled]:
        with self._lock:
            expires_at = self.clock.now() + to_microseconds(lease_seconds)
            return [self._extend(lease, expires_at) for lease in leases]

    def _extend(self, lease: Lease, expires_at: int) -> Settled:
        job = self._held(lease)
        if job is None:
            return Settled.LOST
        job.expires_at = expires_at
        return Settled.SETTLED

    def reap_expired(self, queue: str | None = None, limit: int = 1000) -> int:
        with self._lock:
            now = self.clock.now()
            lost = [job for job in self._of(queue) if self._expired(job, now)][:limit]
            charged = [job.message() for job in lost if job.suspect]
            for job in lost:
                job.reaped_token, job.reap_charged = job.token, job.suspect
                if job.suspect and self.capabilities.delay:
                    job.due = max(now + to_microseconds(crash_delay(job.crashes)), job.due)
                job.crashes += job.suspect
                job.suspect = True
                self._placed(job, now)
        for message in charged:
            emit_crash_of(message)
        return len(lost)

    def _expired(self, job: MemoryJob, now: int) -> bool:
        return job.expires_at is not None and job.expires_at <= now

    def stats(self, queue: str) -> base.QueueStats:
        with self._lock:
            due = self._ready(queue)
            ready = [job for job in due if self._has_place(job, [])]
            states = [job.state for job in self._of(queue)]
            waited = self.clock.now() - min(job.due for job in ready) if ready else 0
            return base.QueueStats(
                ready=len(ready),
                scheduled=states.count(SCHEDULED),
                running=states.count(RUNNING),
                blocked=len(due) - len(ready),
                suspect=sum(job.suspect for job in self._of(queue)),
                oldest_ready_seconds=waited / SECOND,
            )

    def peek(self, queue: str, limit: int = 20) -> list[base.Glimpse]:
        with self._lock:
            ready = self._ready(queue)
            later = [job for job in self._of(queue) if job.state == SCHEDULED]
            later.sort(key=lambda job: (job.due, job.id))
            return [self._glimpse(job) for job in (ready + later)[:limit]]

    def find(self, job_id: str) -> base.Glimpse | None:
        with self._lock:
            job = self.jobs.get(job_id)
            return self._glimpse(job) if job else None

    def _glimpse(self, job: MemoryJob) -> base.Glimpse:
        return base.Glimpse(
            id=job.id,
            queue=job.queue,
            state=job.state,
            due=job.due,
            message=job.message(),
            lease_expires=job.expires_at,
        )

    def cancel(self, job_id: str) -> bool:
        with self._lock:
            job = self.jobs.get(job_id)
            if job is None or job.state == RUNNING:
                return False
            del self.jobs[job_id]
            self._keep_cancelled(job_id, "cancelled")
            return True

    def _keep_cancelled(self, job_id: str, why: str) -> None:
        self.ended.add(job_id)
        now = self.clock.now()
        self.results[job_id] = ResultRecord(status="cancelled", output=why, finished_at=now)

    def result(self, job_id: str) -> base.Ended | None:
        with self._lock:
            if (record := self.results.get(job_id)) is not None:
                return base.Ended(
                    status=record.status,
                    value_json=record.value_json,
                    reason=reason_of(record.status, record.output),
                    output=record.output,
                )
            dead = self.dead.get(job_id)
            return None if dead is None else base.Ended(status="dead", reason=dead.failure.reason)

    def _of(self, queue: str | None) -> list[MemoryJob]:
        return [job for job in self.jobs.values() if queue in {None, job.queue}]
