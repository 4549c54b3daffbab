"""The contract between the worker and what carries its jobs.

A backend moves messages and holds leases. It does not open messages, run handlers or
decide about retries. ``Backend`` has the verbs that each backend needs, and the facts that
it declares about itself. What only some stores can do is a small class of its own, which a
backend derives from: the rest of the package asks whether it did, never which backend it is.
The public suite in ``django_jobs.testing`` checks every word.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from django_jobs.backends.values import (
    Account,
    AttemptRecord,
    Capabilities,
    Charge,
    Chores,
    Ended,
    Enqueued,
    Evidence,
    Failure,
    Glimpse,
    Lease,
    OnConflict,
    QueueStats,
    ResultRecord,
    Settled,
    Standing,
)
from django_jobs.exceptions import NotSupported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from django_jobs.db.clock import StoreClock
    from django_jobs.wire.envelope import Outgoing

T = TypeVar("T")

__all__ = [
    "Account",
    "AttemptRecord",
    "Backend",
    "Cancels",
    "Capabilities",
    "Charge",
    "Chores",
    "Ended",
    "Enqueued",
    "Evidence",
    "Failure",
    "Glimpse",
    "Inspects",
    "KeepsBreakers",
    "KeepsHouse",
    "Lease",
    "LimitsRates",
    "LooksAhead",
    "OnConflict",
    "QueueStats",
    "Reconnects",
    "ResultRecord",
    "Settled",
    "SharesTransactions",
    "Standing",
]


class Backend(ABC):
    """One alias of ``BACKENDS``. Instances hold no message state and may be shared by threads."""

    capabilities: Capabilities = Capabilities()
    ends_with_process: bool = False
    """Whether its jobs live in one process, and nobody else can see them."""
    trusted_store: bool = False
    """Whether only the site itself writes to the store: its own database, or this process.
    Elsewhere messages are verified whatever ``VERIFY_SIGNATURES`` says.
    """
    shortest_memory: float = 0.0
    """Seconds that a job's result has to be kept, so that ``push`` knows the job has ended."""
    runs_at_enqueue: bool = False
    """Whether an enqueue runs the job, and so the site's code, before it returns."""
    runs_delayed: bool = False
    """Whether a job that is not due yet may be run, because nothing here can wait."""

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        self.alias = alias
        self.options = dict(options)

    @property
    def home(self) -> str | None:
        """The alias of the database its jobs live in; None where they live in none.

        A worker watches over that connection, and shows itself and counts there.
        """
        return None

    def joins(self, alias: str) -> bool:
        """Whether an enqueue belongs to the caller's transaction on a database, and only stores."""
        stores = self.capabilities.transactional_enqueue and not self.runs_at_enqueue
        return stores and alias == self.home

    @property
    def settles_apart(self) -> bool:
        """Whether a worker settles and renews over a connection of its own, beside its claims."""
        return False

    @abstractmethod
    def enqueue(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        """Store every message, or none and raise.

        Idempotent by id: a message whose id is there already is left alone. With a
        transaction of the caller open on the backend's own database the messages belong
        to it. A delay counts from the store's now.
        """

    def push(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        """Store messages that may have been stored before, and may have ended since.

        As ``enqueue``, but a message whose id has ended is left alone as well, in one step
        with the look at it: a worker may end the job at the same moment. For a prepared job
        that is enqueued again, and for a relay that was killed between its push and the note
        of it. So a backend has to remember for a while which ids have ended, also of jobs
        that leave no result. What a relay would be refused at every try raises InvalidJob;
        whatever else is raised is tried again.

        This default looks for results first, which is two steps.
        """
        ended: set[str] = set()
        if isinstance(self, Inspects) and self.capabilities.results:
            ended = {message.id for message in outgoing if self.result(message.id) is not None}
        left = [message for message in outgoing if message.id not in ended]
        stored = iter(self.enqueue(left, on_conflict=on_conflict) if left else ())
        return [
            Enqueued(message.id, created=False) if message.id in ended else next(stored)
            for message in outgoing
        ]

    def known(self, jobs: Mapping[str, str]) -> set[str]:
        """Those of some jobs, by id with their queues, that live here or are known to have ended.

        As ``push`` would know them. Asked before prepared jobs go into an outbox again, and before
        a job is cancelled there that may have been pushed. This default asks for each job.
        """
        can = self.capabilities
        if not (isinstance(self, Inspects) and (can.peek or can.results)):
            raise lacking(self, "tell which jobs it has", ", ".join(jobs))
        return set(self.outcomes(list(jobs)))

    @abstractmethod
    def fetch(self, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Lease]:
        """Lease up to ``limit`` due messages of the first queue that has any.

        Within a queue: higher priority, then earlier due, then earlier id. No two
        callers get the same message. A suspect comes alone. When their bodies make
        ``CLAIM_BYTES`` no more are taken, so that a worker is not given more than it can
        hold. An empty list means there was nothing, or that ``fetch_ended_early``; trouble
        is raised.
        """

    @property
    def fetch_ended_early(self) -> bool:
        """Whether the last fetch gave out nothing because it had passed over enough for one call.

        There is more to look at, so ask again: between two calls a worker renews and settles.
        """
        return False

    @abstractmethod
    def ack(
        self,
        leases: Sequence[Lease],
        results: Mapping[str, ResultRecord] | None = None,
        *,
        undone: Collection[str] = (),
    ) -> list[Settled]:
        """End jobs that need no further run, keeping the results given by id; one step.

        ``undone``: the ids of those whose handler did not do its work, such as cancelled
        ones. Their idempotency keys are free again.
        """

    @abstractmethod
    def nack(
        self,
        lease: Lease,
        delay_seconds: float | None = None,
        *,
        charge: Charge = Charge.ATTEMPT,
        attempt: AttemptRecord | None = None,
    ) -> Settled:
        """Give a job back to run again after the delay on the store's clock; one step.

        Without a delay it returns to the place it had; with one it is due no earlier than it
        was before, though the clock may have stepped back. With ``Charge.NOTHING`` and the token
        of the lease that was reaped last the answer is ``lost``, but what reaping made of
        that loss is taken back: the suspicion, or the crash. Whoever gives back lives.
        """

    def nack_all(self, leases: Sequence[Lease]) -> list[Settled]:
        """Give jobs back that were not run to their end: each to its place, nothing charged.

        As ``nack`` with ``Charge.NOTHING`` and no delay does, in one step where that can be.
        """
        return [self.nack(lease, None, charge=Charge.NOTHING) for lease in leases]

    @abstractmethod
    def abandon(self, lease: Lease, failure: Failure) -> Settled:
        """Move a job, body unchanged, among the dead letters; one step."""

    @abstractmethod
    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Settled]:
        """Let leases end ``lease_seconds`` from the store's now.

        ``unknown``: held by this token, but locked by its own settle just now.
        """

    @abstractmethod
    def reap_expired(self, queue: str | None = None, limit: int = 1000) -> int:
        """Return jobs whose lease ended without a verdict; how many were.

        They become suspect. A suspect that is lost again is charged a crash, and waits for
        ``charged.crash_delay()`` where the backend has delays. Which lease it
        was is remembered until a verdict comes of a later one; see ``nack``.
        """

    def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        """Return when there may be work in the queues, at the latest after the timeout.

        No queues named (None) means all there are. False only if nothing was due when
        it looked last; whoever does not look answers True. It leases nothing. A worker
        calls it from a thread of its own, again and again.
        """
        del queues
        time.sleep(max(timeout, 0.0))
        return True

    def stop_waiting(self) -> None:  # noqa: B027 - most have nothing to stop
        """Let waits that are under way return soon, and close what they hold. From any thread."""

    @abstractmethod
    def stats(self, queue: str) -> QueueStats:
        """Count what waits, or as far as can be counted at once; the oldest's age is exact."""

    def confirm_site(self) -> None:  # noqa: B027 - most are no other site's
        """Raise StoreUnavailable where the store is certain to be another site's.

        Asked before a worker begins. A store that is away raises nothing here.
        """

    def check(self) -> list[Any]:
        """System check messages about this alias's own set-up."""
        return []


class Inspects(Backend):
    """Shows its jobs, live and ended. ``peek``, ``results`` and ``accounts`` say which of them."""

    def peek(self, queue: str, limit: int = 20) -> list[Glimpse]:
        """The next messages of a queue in the order they would be fetched, unleased."""
        raise lacking(self, "peek", queue)

    def find(self, job_id: str) -> Glimpse | None:
        """The live message with an id, or None."""
        raise lacking(self, "peek", job_id)

    def held(self, queue: str, limit: int = 20) -> list[Glimpse]:
        """Some messages of a queue that are leased or wait for a key, where that can be told."""
        del queue, limit
        return []

    def latest(self, queue: str | None, limit: int = 20) -> list[Account]:
        """The latest jobs of each queue of which it keeps a result itself, without attempts."""
        del queue, limit
        return []

    def account(self, job_id: str) -> Account | None:
        """All that is known of a job, live or ended, from whatever process; or None."""
        raise lacking(self, "account for jobs", job_id)

    def result(self, job_id: str) -> Ended | None:
        """How a job ended, while that is kept, or None."""
        raise lacking(self, "keep results", job_id)

    def queues(self) -> list[str]:
        """The names of the queues that hold live messages, as far as they can be told."""
        return []

    def outcomes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        """How some jobs ended, as ``Ended.status``, or None for one that lives.

        What nothing is known of is left out. This default asks for each job.
        """
        can = self.capabilities
        statuses: dict[str, str | None] = {}
        for job_id in job_ids:
            ended = self.result(job_id) if can.results else None
            lives = ended is None and can.peek and self.find(job_id) is not None
            if ended is None and not lives and can.results:
                ended = self.result(job_id)  # it may have ended between the two looks
            if lives or ended is not None:
                statuses[job_id] = None if ended is None else ended.status
        return statuses


class Cancels(Backend):
    """Removes jobs that wait, and may keep a note for one that runs."""

    def cancel(self, job_id: str) -> bool:
        """Remove a job that no one runs; False when it runs or is not there."""
        raise lacking(self, "cancel", job_id)

    def ask_to_stop(self, job_id: str) -> bool:
        """Note that a running job is to stop; False when it does not run, or is asked already.

        A backend that has no place for such a note says False.
        """
        del job_id
        return False

    def asked_to_stop(self, leases: Sequence[Lease]) -> set[str]:
        """The ids of those among some leases whose job is to stop."""
        del leases
        return set()


class KeepsBreakers(Backend):
    """Holds queues back, and keeps the circuit breakers that its workers share."""

    def learn(self, observations: Sequence[tuple[Lease, Evidence]]) -> None:
        """Count for the breakers what settled deliveries say of their queues and handlers."""

    def held_back(self, queues: Sequence[str]) -> str | None:
        """Why jobs that are ready in the queues are not given out, as far as it is known.

        One of ``paused``, ``circuit-open`` and ``rate-limited``.
        """
        del queues
        return None

    def open_breakers(self) -> list[Standing]:
        """The circuit breakers that are open, where the backend itself keeps them."""
        return []

    def forget_breaker(self, kind: str, name: str) -> bool:
        """Close one of them, and let it count anew; False when it had counted nothing."""
        del kind, name
        return False


class LimitsRates(Backend):
    """Counts the starts of jobs, for queues that may start so many in a while."""

    def rate_limited(self, queues: Sequence[str]) -> Collection[str]:
        """Those of some queues with a rate limit: what is fetched from them has to start at once.

        Their leases say until when (``Lease.start_by``).
        """
        del queues
        return ()

    def return_starts(self, leases: Sequence[Lease]) -> None:
        """Count no start for leases with a ``start_by`` that were given back and not run."""

    def forget_rate(self, queue: str) -> bool:
        """Forget what a queue has started lately, where the backend itself counts it."""
        del queue
        return False

    def withholds(self, queues: Sequence[str] | None) -> bool:
        """Whether jobs of these queues, or of all, are due and a limit lets them go by itself.

        When its rate allows, or when jobs that this process has claimed end; not when it waits
        for an operator or another worker. Asked by a worker that is to end when nothing is due.
        """
        del queues
        return False


class KeepsHouse(Backend):
    """Has housekeeping of its own, which workers do for it."""

    def chores(self) -> Chores:
        """What has something to do just now; both, where that cannot be told at less cost."""
        return Chores(reap=True, tidy=True)

    def tidy(self, limit: int = 1000) -> int:
        """Housekeeping in one bounded step: what is due is readied, what is over dropped."""
        del limit
        return 0

    def purge_results(
        self, older_than: int, queue: str | None = None, *, dry_run: bool = False
    ) -> Iterator[tuple[int, int]]:
        """Delete the results that it keeps itself of jobs that ended so many microseconds ago.

        Each bounded step tells how many results and how many of their attempts there were.
        """
        del older_than, queue, dry_run
        return iter(())


class LooksAhead(Backend):
    """Sees what is due next, so that workers look less often."""

    def look_every(self, poll_interval: float) -> float:
        """How long this thread's next wait may last, for a worker that polls so often."""
        return poll_interval

    def next_due_in(self, queues: Sequence[str]) -> float | None:
        """Seconds until the next waiting message of the queues is due; None if unknown."""
        del queues
        return None

    def queues_due(self, since: float) -> list[str] | None:
        """The queues in which something may be due, or None where that cannot be told.

        As of a look no earlier than ``since``, a moment of ``time.monotonic()``.
        """
        del since
        return None


class SharesTransactions(Backend):
    """Keeps its jobs in a database of the site, and can share a transaction with its code."""

    clock: StoreClock
    """By which it judges time there."""
    enqueues_in_parts: bool = False
    """Whether ``as_one`` makes one step of several enqueues."""

    @abstractmethod
    def joint_transaction(self) -> AbstractContextManager[Any]:
        """A transaction in which a handler's writes and the settle of its job end together.

        The block gets Django's connection.
        """

    def longest_atomic(self, lease_seconds: float) -> float | None:
        """The longest run of an ``atomic=True`` job, where a lease cannot be renewed during it."""
        del lease_seconds
        return None

    def works_from_threads(self) -> bool:
        """Whether another thread may use the backend just now, beside a running handler."""
        return True

    def as_one(self, work: Callable[[], T]) -> T:
        """Do work that enqueues part after part, as one step: all of them, or none and raise.

        The work may be done more than once. Only asked of a backend that ``enqueues_in_parts``.
        """
        return work()


class Reconnects(Backend):
    """Talks to servers that may be away, or may act and not answer."""

    def misses(self, queues: Sequence[str] | None) -> bool:
        """Whether some of these queues, or of all, are left alone as their server is away.

        They may hold jobs, so that a worker which is to end when nothing is due goes on.
        """
        del queues
        return False

    def return_unheard(self) -> None:
        """Give back what claims have taken whose answers never came: nothing is charged.

        A claim whose connection broke may have happened; nobody runs its jobs. Costs nothing
        where every claim of this process was answered.
        """

    def is_connected(self) -> bool:
        """Whether the last call of this thread left its connection to the store whole.

        Where it did, an answer that is unknown means that somebody else has the job locked.
        """
        return False


_NEEDED: dict[str, type] = {
    "peek": Inspects,
    "results": Inspects,
    "accounts": Inspects,
    "cancel": Cancels,
    "breakers": KeepsBreakers,
}


def unfounded(backend: Backend) -> dict[str, str]:
    """The capabilities that a backend claims, each with the class that it would have to be."""
    return {
        claim: needed.__name__
        for claim, needed in _NEEDED.items()
        if getattr(backend.capabilities, claim) and not isinstance(backend, needed)
    }


def works_from_threads(backend: Backend) -> bool:
    """Whether another thread may use a backend just now, beside a running handler."""
    return not isinstance(backend, SharesTransactions) or backend.works_from_threads()


def is_connected(backend: Backend) -> bool:
    """Whether the last call of this thread left the connection to a backend's store whole."""
    return isinstance(backend, Reconnects) and backend.is_connected()


def lacking(backend: Backend, capability: str, about: str) -> NotSupported:
    return NotSupported(
        f"the backend {backend.alias!r} ({type(backend).__name__}) cannot {capability} ({about})"
    )
