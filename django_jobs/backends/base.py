"""The contract between the worker and its backends.

A backend moves messages and holds leases. It does not open messages, run handlers or
decide about retries. ``Backend`` has the verbs that every backend needs, and the facts that
it declares about itself. What only some stores can do is in small classes of its own, from which
a backend derives: the rest of the package checks for these classes, never for a certain backend.
The public suite in ``django_jobs.testing`` checks every word.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from django_jobs.backends.values import (
    Account,
    AttemptRecord,
    Capabilities,
    Charge,
    Ended,
    Enqueued,
    Evidence,
    Failure,
    Glimpse,
    HousekeepingDue,
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
    "Ended",
    "Enqueued",
    "Evidence",
    "Failure",
    "Glimpse",
    "HasHousekeeping",
    "HousekeepingDue",
    "Inspects",
    "KeepsBreakers",
    "Lease",
    "LimitsRates",
    "LooksAhead",
    "OnConflict",
    "QueueStats",
    "Reconnects",
    "RemembersEnded",
    "ResultRecord",
    "Settled",
    "SharesTransactions",
    "Standing",
]


class Backend(ABC):
    """One alias of ``BACKENDS``. Instances hold no message state and may be shared by threads."""

    capabilities: Capabilities = Capabilities()
    ends_with_process: bool = False
    """Whether its jobs live in one process, and other processes cannot see them."""
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
        """The alias of the database that holds its jobs, or None.

        A worker watches over that connection, and writes its row and its counts there.
        """
        return None

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

    @abstractmethod
    def fetch(self, queues: Sequence[str], limit: int, lease_seconds: float) -> list[Lease]:
        """Lease up to ``limit`` due messages of the first queue that has any.

        Within a queue: higher priority, then earlier due, then earlier id. No two
        callers get the same message. A suspect comes alone. When their bodies make
        ``CLAIM_BYTES`` no more are taken, so that a worker does not get more than it can
        hold. An empty list means that there was nothing, or that ``fetch_ended_early``; errors
        are raised.
        """

    @property
    def fetch_ended_early(self) -> bool:
        """Whether the last fetch returned nothing because it reached the limit of jobs to skip.

        There is more to look at, so fetch again: between two calls a worker renews and settles.
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
        of the lease that was reaped last the answer is ``lost``, but the effect of reaping is
        undone: the suspicion, or the crash. The worker that gives it back is alive.
        """

    def nack_all(self, leases: Sequence[Lease]) -> list[Settled]:
        """Give jobs back that were not run to their end, each to its place, without a charge.

        Like ``nack`` with ``Charge.NOTHING`` and no delay, in one step where possible.
        """
        return [self.nack(lease, None, charge=Charge.NOTHING) for lease in leases]

    @abstractmethod
    def abandon(self, lease: Lease, failure: Failure) -> Settled:
        """Move a job, body unchanged, to the dead letters; one step."""

    @abstractmethod
    def renew(self, leases: Sequence[Lease], lease_seconds: float) -> list[Settled]:
        """Let leases end ``lease_seconds`` from the store's now.

        ``unknown``: held by this token, but locked by its own settle just now.
        """

    @abstractmethod
    def reap_expired(self, queue: str | None = None, limit: int = 1000) -> int:
        """Return jobs whose lease ended without a verdict, and how many there were.

        They become suspect. A suspect that is lost again is charged a crash, and waits for
        ``crash_events.crash_delay()`` where the backend has delays. The token of the lost lease
        is remembered until the verdict of a later one; see ``nack``.
        """

    @abstractmethod
    def stats(self, queue: str) -> QueueStats:
        """Count the jobs of a queue, perhaps up to a limit; the age of the oldest is exact."""

    def check(self) -> list[Any]:
        """System check messages about this alias's own set-up."""
        return []


class RemembersEnded(Backend):
    """Remembers for a while which ids have ended, also of jobs that left no result."""

    @abstractmethod
    def push(
        self, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict = OnConflict.RETURN
    ) -> list[Enqueued]:
        """Store messages that may have been stored before, and may have ended since.

        As ``enqueue``, but a message whose id has ended is left alone as well, in one step
        with the look at it: a worker may end the job at the same moment. For a prepared job
        that is enqueued again, and for a relay that was killed between its push and the note
        of it. If a relay would be refused at every try, raise InvalidJob; after any other
        error it tries again.
        """

    @abstractmethod
    def known_ids(self, jobs: Mapping[str, str]) -> set[str]:
        """Those of some jobs, by id with their queues, that live here or are known to have ended.

        As ``push`` would know them. Called before prepared jobs go into an outbox again, and before
        a job is cancelled there that may have been pushed.
        """


class Inspects(Backend):
    """Shows its jobs, live and ended. ``peek``, ``results`` and ``accounts`` say which of them."""

    def peek(self, queue: str, limit: int = 20) -> list[Glimpse]:
        """The next messages of a queue in the order they would be fetched, unleased."""
        raise lacking(self, "peek", queue)

    def find(self, job_id: str) -> Glimpse | None:
        """The live message with an id, or None."""
        raise lacking(self, "peek", job_id)

    def held(self, queue: str, limit: int = 20) -> list[Glimpse]:
        """Some messages of a queue that are leased or wait for a key, where the store knows."""
        del queue, limit
        return []

    def latest(self, queue: str | None, limit: int = 20) -> list[Account]:
        """The latest ended jobs whose results it keeps itself, without attempts."""
        del queue, limit
        return []

    def account(self, job_id: str) -> Account | None:
        """All that is stored about a job, live or ended, of any process; or None."""
        raise lacking(self, "account for jobs", job_id)

    def result(self, job_id: str) -> Ended | None:
        """How a job ended, as long as its result is kept, or None."""
        raise lacking(self, "keep results", job_id)

    def queues(self) -> list[str]:
        """The names of the queues that hold live messages, as far as the store knows."""
        return []

    def outcomes(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        """How some jobs ended, as ``Ended.status``, or None for one that lives.

        Unknown jobs are left out. This default looks up each job.
        """
        can = self.capabilities
        statuses: dict[str, str | None] = {}
        for job_id in job_ids:
            ended = self.result(job_id) if can.results else None
            lives = ended is None and can.peek and self.find(job_id) is not None
            if ended is None and not lives and can.results:
                ended = self.result(job_id)  # it may have ended in between
            if lives or ended is not None:
                statuses[job_id] = None if ended is None else ended.status
        return statuses


class Cancels(Backend):
    """Can remove waiting jobs, and perhaps ask a running one to stop."""

    def cancel(self, job_id: str) -> bool:
        """Remove a job that is not running; False if it runs or does not exist."""
        raise lacking(self, "cancel", job_id)

    def ask_to_stop(self, job_id: str) -> bool:
        """Ask a running job to stop; False if it does not run, or was asked already.

        A backend that cannot store this returns False.
        """
        del job_id
        return False

    def asked_to_stop(self, leases: Sequence[Lease]) -> set[str]:
        """The ids of the leases whose jobs were asked to stop."""
        del leases
        return set()


class KeepsBreakers(Backend):
    """Holds queues back, and keeps the circuit breakers that its workers share."""

    def count_evidence(self, observations: Sequence[tuple[Lease, Evidence]]) -> None:
        """Count the outcomes of settled deliveries in the breakers of queues and handlers."""

    def held_back(self, queues: Sequence[str]) -> str | None:
        """Why ready jobs of the queues are not given out, if that is known.

        One of ``paused``, ``circuit-open`` and ``rate-limited``.
        """
        del queues
        return None

    def open_breakers(self) -> list[Standing]:
        """The open circuit breakers, if the backend itself keeps them."""
        return []

    def forget_breaker(self, kind: str, name: str) -> bool:
        """Close and reset a breaker; False if it had counted nothing."""
        del kind, name
        return False


class LimitsRates(Backend):
    """Counts the starts of jobs, for queues with a rate limit."""

    def rate_limited(self, queues: Sequence[str]) -> Collection[str]:
        """The queues with a rate limit: jobs fetched from them have to start at once.

        Their leases have a deadline (``Lease.start_by``).
        """
        del queues
        return ()

    def return_starts(self, leases: Sequence[Lease]) -> None:
        """Undo the counted starts of leases with a ``start_by`` that were given back unrun."""

    def forget_rate(self, queue: str) -> bool:
        """Forget the recent starts of a queue, if the backend itself counts them."""
        del queue
        return False

    def withholds(self, queues: Sequence[str] | None) -> bool:
        """Whether jobs of these queues, or of all, are due but wait for a limit.

        Only for a rate, or for jobs of this process to end; not for an operator or another
        worker. Called by a worker that is to end when nothing is due.
        """
        del queues
        return False


class HasHousekeeping(Backend):
    """Has housekeeping of its own, which workers do."""

    def housekeeping_due(self) -> HousekeepingDue:
        """The housekeeping that is due; both kinds if finding out costs as much as doing it."""
        return HousekeepingDue(reap=True, clean_up=True)

    def clean_up(self, limit: int = 1000) -> int:
        """Housekeeping in one bounded step: make due jobs ready, and delete what has expired."""
        del limit
        return 0

    def purge_results(
        self, older_than: int, queue: str | None = None, *, dry_run: bool = False
    ) -> Iterator[tuple[int, int]]:
        """Delete results that it keeps itself and that are older than so many microseconds.

        Each bounded step yields the number of results and the number of their attempts.
        """
        del older_than, queue, dry_run
        return iter(())


class LooksAhead(Backend):
    """Knows what is due next, so that workers poll less often."""

    def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        """Return when there may be work in the queues, at the latest after the timeout.

        ``None`` for the queues means all of them. False only if nothing was due when it looked
        last; a backend that does not look returns True. It leases nothing. A worker calls it
        from a thread of its own, again and again.
        """
        del queues
        return _slept(timeout)

    def stop_waiting(self) -> None:
        """Make waits that are under way return soon, and close their resources. From any thread."""

    def look_every(self, poll_interval: float) -> float:
        """How long this thread's next wait may last, for a worker with this poll interval."""
        return poll_interval

    def next_due_in(self, queues: Sequence[str]) -> float | None:
        """Seconds until the next waiting message of the queues is due; None if unknown."""
        del queues
        return None

    def queues_due(self, since: float) -> list[str] | None:
        """The queues in which something may be due, or None if that is unknown.

        As of a poll no earlier than ``since``, a moment of ``time.monotonic()``.
        """
        del since
        return None


class SharesTransactions(Backend):
    """Keeps its jobs in a database of the site, and can share a transaction with its code."""

    clock: StoreClock
    """The clock of that database."""
    enqueues_in_parts: bool = False
    """Whether ``as_one`` makes several enqueues atomic."""

    @abstractmethod
    def joint_transaction(self) -> AbstractContextManager[Any]:
        """A transaction in which a handler's writes and the settle of its job end together.

        The block gets Django's connection.
        """

    def longest_atomic(self, lease_seconds: float) -> float | None:
        """The longest run of an ``atomic=True`` job, if its lease cannot be renewed meanwhile."""
        del lease_seconds
        return None

    def works_from_threads(self) -> bool:
        """Whether another thread may use the backend just now, beside a running handler."""
        return True

    def as_one(self, work: Callable[[], T]) -> T:
        """Do work that enqueues in several parts as one step: all of them, or none and raise.

        The work may be done more than once. Only called if ``enqueues_in_parts``.
        """
        return work()


class Reconnects(Backend):
    """Talks to servers that may be away, or may act without answering."""

    def skips(self, queues: Sequence[str] | None) -> bool:
        """Whether some of these queues, or of all, are skipped because their server is away.

        They may hold jobs, so a worker that is to end when nothing is due goes on.
        """
        del queues
        return False

    def return_unanswered(self) -> None:
        """Give back, without a charge, the jobs of claims whose answers never arrived.

        A claim whose connection broke may have happened, and no worker runs its jobs. Costs
        nothing if every claim of this process was answered.
        """

    def is_connected(self) -> bool:
        """Whether this thread's connection to the store survived the last call.

        If it did, an unknown answer means that another transaction has locked the job.
        """
        return False

    def confirm_site(self) -> None:
        """Raise StoreUnavailable if the store certainly belongs to another site.

        Called before a worker begins. A store that is away raises nothing here.
        """


_PARTS: dict[type, tuple[str, ...]] = {
    RemembersEnded: (),
    Inspects: ("peek", "results", "accounts"),
    Cancels: ("cancel",),
    KeepsBreakers: ("breakers",),
    LimitsRates: (),
    HasHousekeeping: (),
    LooksAhead: (),
    SharesTransactions: (),
    Reconnects: (),
}
"""Every part, and the capabilities that only a backend with it can claim."""


def unfounded(backend: Backend) -> dict[str, str]:
    """The capabilities that a backend claims without deriving from the class each one needs."""
    return {
        claim: part.__name__
        for part, claims in _PARTS.items()
        for claim in claims
        if getattr(backend.capabilities, claim) and not isinstance(backend, part)
    }


def ignored(backend: Backend) -> dict[str, str]:
    """The methods of optional parts that a backend has without deriving from the part.

    No worker would call them, and its author would never learn why.
    """
    return {
        name: part.__name__
        for part in _PARTS
        if not isinstance(backend, part)
        for name, method in vars(part).items()
        if callable(method) and not name.startswith("_") and hasattr(type(backend), name)
    }


def joins(backend: Backend, alias: str) -> bool:
    """Whether an enqueue only stores, and in the caller's transaction on a database."""
    stores = backend.capabilities.transactional_enqueue and not backend.runs_at_enqueue
    return stores and alias == backend.home


def push(
    backend: Backend,
    outgoing: Sequence[Outgoing],
    *,
    on_conflict: OnConflict = OnConflict.RETURN,
) -> list[Enqueued]:
    """As ``RemembersEnded.push``, for any backend."""
    if isinstance(backend, RemembersEnded):
        return backend.push(outgoing, on_conflict=on_conflict)
    return push_in_two_steps(backend, outgoing, on_conflict=on_conflict)


def push_in_two_steps(
    backend: Backend, outgoing: Sequence[Outgoing], *, on_conflict: OnConflict
) -> list[Enqueued]:
    """Look for results, then enqueue: a job that ends in between, or left no result, runs again."""
    ended: set[str] = set()
    if isinstance(backend, Inspects) and backend.capabilities.results:
        ended = {message.id for message in outgoing if backend.result(message.id) is not None}
    left = [message for message in outgoing if message.id not in ended]
    stored = iter(backend.enqueue(left, on_conflict=on_conflict) if left else ())
    return [
        Enqueued(message.id, created=False) if message.id in ended else next(stored)
        for message in outgoing
    ]


def ids_known_to(backend: Backend, jobs: Mapping[str, str]) -> set[str]:
    """As ``RemembersEnded.known_ids``, for any backend: others look up each job."""
    if isinstance(backend, RemembersEnded):
        return backend.known_ids(jobs)
    can = backend.capabilities
    if not (isinstance(backend, Inspects) and (can.peek or can.results)):
        raise lacking(backend, "tell which jobs it has", ", ".join(jobs))
    return set(backend.outcomes(list(jobs)))


def wait_for_work(backend: Backend, queues: Sequence[str] | None, timeout: float) -> bool:
    """As ``LooksAhead.wait``, for any backend: others sleep, so that their workers poll."""
    if isinstance(backend, LooksAhead):
        return backend.wait(queues, timeout)
    return _slept(timeout)


def _slept(timeout: float) -> bool:
    time.sleep(max(timeout, 0.0))
    return True


def stop_waiting(backend: Backend) -> None:
    """As ``LooksAhead.stop_waiting``, for any backend."""
    if isinstance(backend, LooksAhead):
        backend.stop_waiting()


def works_from_threads(backend: Backend) -> bool:
    """As ``SharesTransactions.works_from_threads``, for any backend."""
    return not isinstance(backend, SharesTransactions) or backend.works_from_threads()


def is_connected(backend: Backend) -> bool:
    """As ``Reconnects.is_connected``, for any backend."""
    return isinstance(backend, Reconnects) and backend.is_connected()


def can_peek(backend: Backend) -> TypeGuard[Inspects]:
    """Whether a backend shows its live jobs. Only one that ``Inspects`` may claim that."""
    return backend.capabilities.peek


def can_account(backend: Backend) -> TypeGuard[Inspects]:
    """Whether a backend tells everything about a job. Only one that ``Inspects`` may claim that."""
    return backend.capabilities.accounts


def lacking(backend: Backend, capability: str, about: str) -> NotSupported:
    return NotSupported(
        f"the backend {backend.alias!r} ({type(backend).__name__}) cannot {capability} ({about})"
    )
