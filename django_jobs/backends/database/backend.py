"""The database backend: each verb of the contract calls the module that has its SQL.

The statements that change state, by verb, with their modules and tables:

    enqueue            enqueue: Job; cancel: Job, JobResult; keys: Job, JobKey
    push               enqueue: Job; cancel: Job, JobResult; keys: Job, JobKey
    fetch              claim: Job; keys: Job, JobKey; meters: QueueMeter; breakers: Job, Breaker;
                       settle: Job; unreadable: Job; db.dead_letters: FailedJob, FailureGroup
    ack                ack: Job, JobResult, EndedIds; settle: Job; keys: Job, JobKey
    nack               settle: Job, JobAttempt; keys: Job, JobKey
    nack_all           settle: Job; keys: Job, JobKey
    abandon            settle: Job, JobAttempt; keys: Job, JobKey;
                       db.dead_letters: FailedJob, FailureGroup
    renew              settle: Job
    reap_expired       settle: Job; keys: Job, JobKey;
                       unreadable: Job; db.dead_letters: FailedJob, FailureGroup
    cancel             cancel: Job, JobResult; keys: Job, JobKey
    ask_to_stop        cancel: Job
    count_evidence     breakers: Breaker
    return_starts      meters: QueueMeter
    return_unanswered  settle: Job; keys: Job, JobKey
    clean_up           claim: Job; keys: Job, JobKey; unreadable: Job;
                       db.cleanup: JobResult, JobAttempt, EndedIds, FailedJob;
                       db.dead_letters: FailureGroup

``keys`` gives free places of keys to jobs that waited for them; ``unreadable`` puts away rows that
cannot be read.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import Error, connections, transaction

from django_jobs.backends.base import (
    Cancels,
    Capabilities,
    Charge,
    HasHousekeeping,
    Inspects,
    KeepsBreakers,
    LimitsRates,
    LooksAhead,
    OnConflict,
    Reconnects,
    RemembersEnded,
    Settled,
    SharesTransactions,
)
from django_jobs.backends.database import keys, read, settle
from django_jobs.backends.database.ack import ack
from django_jobs.backends.database.breakers import Breakers
from django_jobs.backends.database.cancel import ask_to_stop, asked_to_stop, remove_waiting
from django_jobs.backends.database.claim import Claim, Cursors, promote
from django_jobs.backends.database.enqueue import Inserter
from django_jobs.backends.database.meters import Meters
from django_jobs.backends.database.notify import HORIZON_SECONDS, Hints
from django_jobs.backends.database.read import account_of
from django_jobs.backends.database.unreadable import end_endless, past_unreadable
from django_jobs.backends.database.wait import (
    SURE_FACTOR,
    Glance,
    LastGlance,
    Watch,
    Watches,
    all_queues,
    glance,
    queues_with_blocked,
)
from django_jobs.backends.shared_breakers import Closed
from django_jobs.backends.unanswered import UnansweredClaims, answered
from django_jobs.db.cleanup import Sweeper
from django_jobs.db.clock import StoreClock
from django_jobs.db.transactions import in_reading, is_row_locked, is_unavailable
from django_jobs.exceptions import InvalidBackend
from django_jobs.ids import parse_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from django_jobs.backends.base import (
        Account,
        AttemptRecord,
        Ended,
        Enqueued,
        Evidence,
        Failure,
        Glimpse,
        HousekeepingDue,
        Lease,
        QueueStats,
        ResultRecord,
    )
    from django_jobs.backends.database.unreadable import Rows
    from django_jobs.wire.envelope import Outgoing

T = TypeVar("T")

TURNS = 5
"""The claims that one fetch may spend without a job that may run.

Each of them puts off or parks many of the jobs in its way at once.
"""

LOCKED_SECONDS = 2.0
"""How long a queue is left alone after a row in it was locked for too long."""

LONGEST_WAIT_SECONDS = HORIZON_SECONDS
"""A job that is due later than this was enqueued without a hint."""


class DatabaseBackend(
    RemembersEnded,
    Inspects,
    Cancels,
    KeepsBreakers,
    LimitsRates,
    HasHousekeeping,
    LooksAhead,
    SharesTransactions,
    Reconnects,
):
    """Jobs in a table of the database named by ``OPTIONS["DATABASE"]``.

    ``OPTIONS["NOTIFY"]``: whether PostgreSQL tells idle workers of new jobs.
    """

    trusted_store = True
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
        keys=True,
        accounts=True,
        breakers=True,
    )

    claim_class = Claim
    enqueues_in_parts = True
    shortest_memory = 3600.0

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        super().__init__(alias, options)
        self.database: str = self.options.get("DATABASE", "default")
        self._inserter = Inserter(self.database)
        self._cursors = Cursors()
        self._notifies = self.options.get("NOTIFY", True)
        if not isinstance(self._notifies, bool):
            raise InvalidBackend(
                f"OPTIONS['NOTIFY'] of the backend {alias!r} is {self._notifies!r}; "
                "write True or False"
            )
        self._hints = Hints(self.database, alias)
        self._watches = Watches()
        self._closed = Closed()
        self._locked: dict[str, tuple[float, Error]] = {}
        self._notify = self._hints.due if self._notifies else keys.no_hints
        self.clock = StoreClock()
        self._last_glance = LastGlance()
        self._ended_early = False
        self._turns = TURNS
        self._sweeper = Sweeper(self.database)
        self._unanswered = UnansweredClaims[str](
            lambda token: settle.return_claimed(self.database, self.clock, token, self._notify)
        )

    @property
    def home(self) -> str:
        return self.database

    @property
    def clock(self) -> StoreClock:
        return self._clock

    @clock.setter
    def clock(self, clock: StoreClock) -> None:
        """Rebuild everything that reads the clock, so that a test moves time for all of it."""
        self._clock = clock
        self._meters = Meters(self.database, clock, self.alias, self._closed)
        self._breakers = Breakers(self.database, clock, self.alias, self._closed, self._notify)
        self._forgotten = keys.Forgotten(self.database, clock, self._notify)

    def enqueue(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        if not outgoing:
            return []
        stored = self._inserter.insert(self.clock, outgoing, on_conflict)
        if self._notifies and any(job.created for job in stored):
            self._hints.enqueued(outgoing)
        return stored

    def push(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        stored = self._inserter.insert_unless_ended(self.clock, self.alias, outgoing, on_conflict)
        if self._notifies and any(job.created for job in stored):
            self._hints.enqueued(outgoing)
        return stored

    def known_ids(self, jobs: Mapping[str, str]) -> set[str]:
        return self._read(lambda: read.known_among(self.database, self.alias, list(jobs)))

    def as_one(self, work: Callable[[], T]) -> T:
        return self._inserter.as_one(work)

    def fetch(self, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Lease]:
        self.return_unanswered()
        self._ended_early, self._turns = False, TURNS
        locked: Error | None = None
        for queue in queues:
            if lock_error := self._locked_lately(queue):
                locked = lock_error
                continue
            try:
                admitted = self._admitted(queue, limit, lease_seconds)
            except Error as error:
                # A key's row that is locked for long must not block the other queues.
                if connections[self.database].in_atomic_block or not is_row_locked(error):
                    raise
                self._locked[queue], locked = (time.monotonic() + LOCKED_SECONDS, error), error
                continue
            if admitted or not self._turns:
                self._ended_early = not admitted
                return admitted
        if locked is not None:  # or the queue would seem empty
            raise locked
        return []

    def _admitted(self, queue: str, limit: int, lease_seconds: float) -> list[Lease]:
        """Leases of a queue that may run. If anything fails after a claim, it is given back."""
        tokens: list[str] = []
        try:
            while not self._closed.left(queue) and self._turns:
                leases = self._despite_rows(queue, limit, lease_seconds, tokens)
                if not leases:
                    break
                admitted = self._admit(self._breakers.admit(leases), lease_seconds)
                self._meters.admitted(queue, admitted, of=leases)
                self._turns -= 1
                if admitted:
                    return admitted
                tokens.clear()
        except BaseException:
            # The claim may have happened, and no worker is going to run its jobs.
            self._unanswered.add(tokens, lease_seconds)
            raise
        return []

    def _locked_lately(self, queue: str) -> Error | None:
        until, error = self._locked.get(queue, (0.0, None))
        return error if until > time.monotonic() else None

    @property
    def fetch_ended_early(self) -> bool:
        return self._ended_early

    def _despite_rows(
        self, queue: str, limit: int, lease_seconds: float, tokens: list[str]
    ) -> list[Lease]:
        """Claim from a queue, past rows that cannot be read."""

        def met() -> list[Rows]:
            for token in tokens:  # a claim may have happened before reading its rows failed
                settle.return_claimed(self.database, self.clock, token, self._notify)
            return self._claim(limit, lease_seconds).met(queue)

        def claim() -> list[Lease]:
            return self._from_queue(queue, limit, lease_seconds, tokens)

        return past_unreadable(self.database, self.clock, claim, met)

    def _admit(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease]:
        return keys.admit(self.database, self.clock, leases, lease_seconds, self._notify)

    def return_unanswered(self) -> None:
        self._unanswered.give_back()

    @property
    def settles_apart(self) -> bool:
        """Not on SQLite, which has one writer."""
        return connections[self.database].vendor != "sqlite"

    def is_connected(self) -> bool:
        return connections[self.database].connection is not None

    def _from_queue(
        self, queue: str, limit: int, lease_seconds: float, tokens: list[str]
    ) -> list[Lease]:
        def take(count: int) -> list[Lease]:
            claim = self._claim(count, lease_seconds)
            tokens.append(claim.token)
            return claim.from_queue(queue)

        def probe(_: int) -> list[Lease]:
            return self._breakers.let_one_pass(queue, take)

        limits = self._meters.limits(queue)
        chosen = probe if self._breakers.is_open(queue) else take
        return chosen(limit) if limits is None else self._meters.claim(queue, limits, limit, chosen)

    def _claim(self, limit: int, lease_seconds: float) -> Claim:
        return self.claim_class(
            self.database,
            self.clock,
            backend=self.alias,
            limit=limit,
            lease_seconds=lease_seconds,
            cursors=self._cursors,
        )

    def ack(
        self,
        leases: Sequence[Lease],
        results: Mapping[str, ResultRecord] | None = None,
        *,
        undone: Collection[str] = (),
    ) -> list[Settled]:
        kept = results or {}
        return answered(
            lambda: ack(self.database, self.clock, leases, kept, undone, self._notify), len(leases)
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
                settle.nack(
                    self.database, self.clock, lease, delay_seconds, charge, attempt, self._notify
                )
            ]

        answers = answered(work, 1)
        if self._notifies and not delay_seconds:
            self._hints.returned([lease], answers)
        return answers[0]

    def nack_all(self, leases: Sequence[Lease]) -> list[Settled]:
        answers = answered(
            lambda: settle.nack_all(self.database, self.clock, leases, self._notify), len(leases)
        )
        if self._notifies:
            self._hints.returned(leases, answers)
        return answers

    def abandon(self, lease: Lease, failure: Failure) -> Settled:
        def work() -> list[Settled]:
            return [settle.abandon(self.database, self.clock, lease, failure, self._notify)]

        return answered(work, 1)[0]

    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Settled]:
        return answered(
            lambda: settle.renew(self.database, self.clock, leases, lease_seconds), len(leases)
        )

    def reap_expired(self, queue: str | None = None, limit: int = 1000) -> int:
        return settle.reap_expired(
            self.database, self.clock, self.alias, queue, limit, self._notify
        )

    def housekeeping_due(self) -> HousekeepingDue:
        return (self._last_glance.taken() or self._glance(None)).housekeeping_due()

    def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        if timeout <= 0:
            return self._glance(queues).due_in == 0
        watch = self._watches.mine()
        if watch is None:
            watch = Watch(self.database, self.alias, self._glance, hints=self._notifies)
            self._watches.keep(watch)
        if watch.stopped:
            self._watches.drop(watch)
            return False
        return watch.wait(queues, min(timeout, LONGEST_WAIT_SECONDS))

    def stop_waiting(self) -> None:
        self._watches.stop()

    def look_every(self, poll_interval: float) -> float:
        """Less often where new jobs wake the worker."""
        watch = self._watches.mine()
        return poll_interval * (SURE_FACTOR if watch is not None and watch.gets_hints else 1.0)

    def next_due_in(self, queues: Sequence[str]) -> float | None:
        return self._glance(queues).due_in

    def _glance(self, queues: Sequence[str] | None) -> Glance:
        began = time.monotonic()
        seen = glance(self.database, self.clock, self.alias, queues, self._closed.all())
        return seen if self.clock.is_set_by_hand else self._last_glance.keep(queues, began, seen)

    def rate_limited(self, queues: Sequence[str]) -> Collection[str]:
        return self._meters.rated(queues)

    def withholds(self, queues: Sequence[str] | None) -> bool:
        """Leave out queues that a breaker closes as well: that may take long."""

        def is_ready(some: list[str]) -> bool:
            return bool(some) and glance(self.database, self.clock, self.alias, some).ready

        metered = self._meters.limited(queues)
        limited = [queue for queue in metered if not self._breakers.is_open(queue)]
        return is_ready(limited) and any(
            is_ready([queue]) and self._meters.lets_go(queue) for queue in limited
        )

    def return_starts(self, leases: Sequence[Lease]) -> None:
        for queue in sorted({lease.queue for lease in leases}):
            mine = [lease for lease in leases if lease.queue == queue]
            self._meters.return_starts(queue, mine)

    def count_evidence(self, observations: Sequence[tuple[Lease, Evidence]]) -> None:
        self._breakers.count_evidence(observations)

    def held_back(self, queues: Sequence[str]) -> str | None:
        paused = self._read(lambda: read.paused_with_jobs(self.database, self.alias, queues))
        return "paused" if paused else next(filter(None, map(self._closed.why, queues)), None)

    def stats(self, queue: str) -> QueueStats:
        return self._read(lambda: read.stats(self.database, self.clock, self.alias, queue))

    def peek(self, queue: str, limit: int = 20) -> list[Glimpse]:
        return self._read(lambda: read.peek(self.database, self.alias, queue, limit))

    def find(self, job_id: str) -> Glimpse | None:
        return self._looked_up(job_id, read.find)

    def result(self, job_id: str) -> Ended | None:
        return self._looked_up(job_id, read.ended)

    def account(self, job_id: str) -> Account | None:
        return self._looked_up(job_id, account_of)

    def _looked_up(self, job_id: str, look: Callable[[str, str, str], T | None]) -> T | None:
        key = parse_id(job_id)
        if key is None:
            return None
        return self._read(lambda: look(self.database, self.alias, key))

    def queues(self) -> list[str]:
        return all_queues(self.database)

    def outcomes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        return self._read(lambda: read.outcomes(self.database, self.alias, job_ids))

    def queues_due(self, since: float) -> list[str]:
        return (self._last_glance.since(since) or self._glance(None)).queues_due()

    def clean_up(self, limit: int = 1000) -> int:
        return _sum_of_each(
            lambda: self._forgotten.wake(queues_with_blocked(self.database), limit),
            lambda: end_endless(self.database, self.clock, limit),
            lambda: promote(self.database, self.clock, None, limit),
            lambda: self._sweeper.sweep(self.clock, limit),
            lambda: keys.sweep(self.database, self.clock, limit),
        )

    @contextmanager
    def joint_transaction(self) -> Iterator[Any]:
        with transaction.atomic(using=self.database):
            yield connections[self.database]

    def longest_atomic(self, lease_seconds: float) -> float | None:
        """On SQLite the handler holds the only write lock for as long as it runs."""
        return lease_seconds / 3 if connections[self.database].vendor == "sqlite" else None

    def works_from_threads(self) -> bool:
        """Not inside a transaction: another connection cannot see what it wrote.

        Nor with a SQLite database in memory, which belongs to this connection alone.
        """
        connection: Any = connections[self.database]
        if connection.in_atomic_block:
            return False
        return connection.vendor != "sqlite" or not connection.is_in_memory_db()

    def cancel(self, job_id: str) -> bool:
        key = parse_id(job_id)
        return key is not None and remove_waiting(
            self.database, self.clock, key, "cancelled", self._notify
        )

    def ask_to_stop(self, job_id: str) -> bool:
        key = parse_id(job_id)
        return key is not None and ask_to_stop(self.database, self.alias, key)

    def asked_to_stop(self, leases: Sequence[Lease]) -> set[str]:
        return asked_to_stop(self.database, leases)

    def _read(self, work: Callable[[], T]) -> T:
        return in_reading(self.database, work)


def _sum_of_each(*steps: Callable[[], int | None]) -> int:
    """Take every step, even if one fails; then raise the first error.

    If the database is unavailable stop at once: the other steps would wait for it too.
    """
    done, failed = 0, None
    for step in steps:
        try:
            done += step() or 0
        except Exception as error:
            if isinstance(error, Error) and is_unavailable(error):
                raise
            failed = failed or error
    if failed is not None:
        raise failed
    return done
