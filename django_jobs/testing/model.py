"""The contract as a state machine: long random histories against a small model.

Needs hypothesis, which no other module imports. The model implements the rules of the contract
and depends on no backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from django_jobs.backends.base import Backend, Cancels, Charge, Failure, Lease, OnConflict, Settled
from django_jobs.exceptions import DuplicateJob
from django_jobs.testing.factories import make_outgoing

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.wire.envelope import Outgoing

QUEUES = ("north", "south")
LEASE, MANY = 30, 8
CRASH_WAITS = (1, 10, 60)
# Whole seconds keep the arithmetic exact; some are longer than a lease.
seconds = st.sampled_from((0, 1, 7, 29, 30, 31, 90))
charges = st.sampled_from(tuple(Charge))
some_queues = st.sampled_from((("north",), ("south",), QUEUES, QUEUES[::-1]))
places = st.integers(0, 10_000)
conflicts = st.sampled_from(tuple(OnConflict))
some_terms = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "priority": st.sampled_from((0, 0, -1, 1)),
        "delay": st.sampled_from((None, None, 5, 40)),
        "key": st.sampled_from((None, None, "k", "K")),
    }
)


@dataclass(slots=True)
class Expected:
    """The state of a live job that the contract requires."""

    outgoing: Outgoing
    queue: str
    priority: int
    due: int
    key: str | None
    holder: Lease | None = None
    lease_end: int = 0
    attempts: int = 0
    crashes: int = 0
    deliveries: int = 0
    suspect: bool = False
    reaped: Lease | None = None
    reap_charged: bool = False


class Model:
    """All live jobs by id, and seconds since the machine was started."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: dict[str, Expected] = {}

    def waiting(self, queue: str) -> list[Expected]:
        due = [
            job
            for job in self.jobs.values()
            if job.queue == queue and job.holder is None and job.due <= self.now
        ]
        return sorted(due, key=lambda job: (-job.priority, job.due, job.outgoing.id))

    def next_leases(self, queues: tuple[str, ...], limit: int) -> list[Expected]:
        line = next((line for queue in queues if (line := self.waiting(queue))), [])
        if line and line[0].suspect:
            return line[:1]
        company: list[Expected] = []
        for job in line[:limit]:
            if job.suspect:
                break
            company.append(job)
        return company

    def held(self, lease: Lease) -> Expected | None:
        job = self.jobs.get(lease.id)
        return job if job is not None and job.holder is lease else None

    def holder_of(self, key: str | None) -> Expected | None:
        holders = [job for job in self.jobs.values() if key is not None and job.key == key]
        return holders[0] if holders else None

    def take_loss_back(self, lease: Lease) -> None:
        job = self.jobs.get(lease.id)
        if job is not None and job.reaped is lease:
            job.crashes -= job.reap_charged
            job.suspect, job.reaped = job.reap_charged, None

    def charge(self, job: Expected, charge: Charge) -> None:
        if charge is Charge.ATTEMPT:
            job.attempts += 1
        if charge is Charge.CRASH:
            job.crashes += 1

    def running(self) -> list[Expected]:
        return [job for job in self.jobs.values() if job.holder is not None]

    def lost(self, queue: str | None) -> list[Expected]:
        ended = [job for job in self.running() if job.lease_end <= self.now]
        return [job for job in ended if queue in {None, job.queue}]


some_live = precondition(lambda self: self.model.jobs)
some_run = precondition(lambda self: self.model.running())


class BackendMachine(RuleBasedStateMachine):
    """Runs the same steps on the model and on a backend with all capabilities but transactions."""

    def __init__(self, backend: Backend, advance: Callable[[float], None]) -> None:
        super().__init__()
        self.backend = backend
        self.advance = advance
        self.model = Model()
        # All leases so far: old ones are used again, and must be refused.
        self.leases: list[Lease] = []

    # Skip steps that would find nothing, or most histories would consist of them.
    @precondition(lambda self: len(self.model.jobs) < MANY)
    @rule(jobs=st.lists(some_terms, min_size=1, max_size=4), on_conflict=conflicts)
    def enqueue(self, jobs: list[dict[str, Any]], on_conflict: OnConflict) -> None:
        for terms in jobs:
            self._enqueue(on_conflict, **terms)

    def _enqueue(
        self,
        on_conflict: OnConflict,
        *,
        queue: str,
        priority: int,
        delay: int | None,
        key: str | None,
    ) -> None:
        outgoing = make_outgoing(
            queue, backend=self.backend.alias, priority=priority, delay=delay, unique_key=key
        )
        holder = self.model.holder_of(key)
        try:
            (stored,) = self.backend.enqueue([outgoing], on_conflict=on_conflict)
        except DuplicateJob as error:
            _same(error.existing_id, holder and holder.outgoing.id)
            stands = on_conflict is OnConflict.RAISE or (holder and holder.holder)
            _true(bool(stands), "a waiting job was not replaced")
            return
        if holder is not None and on_conflict is not OnConflict.REPLACE:
            _same((stored.id, stored.created), (holder.outgoing.id, False))
            _true(on_conflict is OnConflict.RETURN, "a conflict was not raised")
            return
        if holder is not None:
            _true(holder.holder is None, "a running job was replaced")
            del self.model.jobs[holder.outgoing.id]
        _same((stored.id, stored.created), (outgoing.id, True))
        due = self.model.now + (delay or 0)
        self.model.jobs[outgoing.id] = Expected(outgoing, queue, priority, due, key)

    @some_live
    @rule(place=places)
    def enqueue_again(self, place: int) -> None:
        jobs = list(self.model.jobs.values())
        outgoing = jobs[place % len(jobs)].outgoing
        (stored,) = self.backend.enqueue([outgoing])
        _same((stored.id, stored.created), (outgoing.id, False))

    @some_live
    @rule(queues=some_queues, limit=st.integers(1, 4))
    def fetch(self, queues: tuple[str, ...], limit: int) -> None:
        expected = self.model.next_leases(queues, limit)
        leases = self.backend.fetch(queues, limit, LEASE)
        _same([lease.id for lease in leases], [job.outgoing.id for job in expected])
        for job, lease in zip(expected, leases, strict=True):
            job.deliveries += 1
            job.holder, job.lease_end = lease, self.model.now + LEASE
            header = lease.message.header
            counted = (header.attempts, header.crashes, header.deliveries, lease.suspect)
            _same(counted, (job.attempts, job.crashes, job.deliveries, job.suspect))
            _same(lease.message.body, job.outgoing.body)
        self.leases += leases

    @some_run
    @rule(picks=st.lists(places, min_size=1, max_size=3))
    def ack(self, picks: list[int]) -> None:
        leases = list({lease.id: lease for lease in map(self._lease, picks)}.values())
        expected = [self._verdict(lease) for lease in leases]
        _same(self.backend.ack(leases), expected)
        for lease, answer in zip(leases, expected, strict=True):
            if answer is Settled.SETTLED:
                del self.model.jobs[lease.id]

    @some_run
    @rule(pick=places, delay=st.none() | seconds, charge=charges)
    def nack(self, pick: int, delay: int | None, charge: Charge) -> None:
        lease = self._lease(pick)
        job = self.model.held(lease)
        _same(self.backend.nack(lease, delay, charge=charge), self._verdict(lease))
        if job is None and charge is Charge.NOTHING:
            self.model.take_loss_back(lease)
        if job is not None:
            self.model.charge(job, charge)
            job.holder = None
            if charge is not Charge.NOTHING or delay is not None:
                job.suspect = charge in {Charge.CRASH, Charge.SUSPICION}
                job.reaped = None
            job.due = job.due if delay is None else self.model.now + delay

    @some_run
    @rule(pick=places, charge=charges)
    def abandon(self, pick: int, charge: Charge) -> None:
        lease = self._lease(pick)
        answer = self.backend.abandon(lease, Failure(reason="exhausted", charge=charge))
        _same(answer, self._verdict(lease))
        if answer is Settled.SETTLED:
            del self.model.jobs[lease.id]

    @some_run
    @rule(pick=places, length=st.sampled_from((1, 30, 300)))
    def renew(self, pick: int, length: int) -> None:
        lease = self._lease(pick)
        _same(self.backend.renew([lease], length), [self._verdict(lease)])
        job = self.model.held(lease)
        if job is not None:
            job.lease_end = self.model.now + length

    @some_run
    @rule(queue=st.sampled_from((None, *QUEUES)))
    def reap(self, queue: str | None) -> None:
        lost = self.model.lost(queue)
        _same(self.backend.reap_expired(queue), len(lost))
        for job in lost:
            job.reaped, job.reap_charged = job.holder, job.suspect
            if job.suspect:
                job.due = max(self.model.now + CRASH_WAITS[min(job.crashes, 2)], job.due)
            job.crashes += job.suspect
            job.holder, job.suspect = None, True

    @some_run
    @rule()
    def another_worker_takes_over(self) -> None:
        lost = min(self.model.running(), key=lambda job: job.lease_end)
        self._pass(max(lost.lease_end - self.model.now, 0))
        self.reap(None)
        self.fetch((lost.queue,), 4)

    @some_live
    @rule(place=places)
    def cancel(self, place: int) -> None:
        jobs = list(self.model.jobs.values())
        job = jobs[place % len(jobs)]
        assert isinstance(self.backend, Cancels)  # it claims everything
        _same(self.backend.cancel(job.outgoing.id), job.holder is None)
        if job.holder is None:
            del self.model.jobs[job.outgoing.id]

    @some_live
    @rule(length=seconds)
    def let_time_pass(self, length: int) -> None:
        self._pass(length)

    def _pass(self, length: int) -> None:
        self.advance(length)
        self.model.now += length

    @invariant()
    def as_many_wait_and_run_as_expected(self) -> None:
        for queue in QUEUES:
            stats = self.backend.stats(queue)
            jobs = [job for job in self.model.jobs.values() if job.queue == queue]
            running = sum(job.holder is not None for job in jobs)
            _same((stats.ready + stats.scheduled, stats.running), (len(jobs) - running, running))

    def _lease(self, pick: int) -> Lease:
        # Mostly current leases, or the old ones would soon outnumber them.
        held = [lease for lease in self.leases if self.model.held(lease) is not None]
        some = held if held and pick % 4 else self.leases
        return some[pick // 4 % len(some)]

    def _verdict(self, lease: Lease) -> Settled:
        return Settled.LOST if self.model.held(lease) is None else Settled.SETTLED


def backend_machine(
    make_backend: Callable[[], Backend], advance: Callable[[Backend, float], None]
) -> type[BackendMachine]:
    """A state machine for ``run_state_machine_as_test``, or its ``TestCase``.

    ``make_backend`` is called for every history and returns a backend with an empty store;
    ``advance(backend, seconds)`` moves the store's clock, which otherwise stands still.
    """

    class Machine(BackendMachine):
        def __init__(self) -> None:
            backend = make_backend()
            super().__init__(backend, lambda seconds: advance(backend, seconds))

    return Machine


def _same(actual: Any, expected: Any) -> None:
    if actual != expected:
        raise AssertionError(f"the backend says {actual!r}, the contract {expected!r}")


def _true(holds: object, complaint: str) -> None:
    assert holds, complaint
