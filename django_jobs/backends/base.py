"""The contract between the worker and whatever carries its jobs.

A backend moves messages and holds leases. It does not open messages, run handlers or
decide about retries. Each verb below names what it guarantees; the public suite in
``django_jobs.testing`` checks every word of it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.exceptions import NotSupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from django_jobs.wire.envelope import Message, Outgoing


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do. What it cannot is refused when a job asks for it."""

    delay: bool = False
    priority: bool = False
    transactional_enqueue: bool = False
    native_dead_letter: bool = False
    renew: bool = False
    batch: bool = False
    results: bool = False
    peek: bool = False
    cancel: bool = False
    unique: bool = False

    def names(self) -> frozenset[str]:
        return frozenset(field.name for field in fields(self) if getattr(self, field.name))


class Settled(Enum):
    """The answer to a settle: it counted, it came too late, or nobody knows."""

    SETTLED = "settled"
    LOST = "lost"
    UNKNOWN = "unknown"


class Charge(Enum):
    """What a give-back consumes."""

    ATTEMPT = "attempt"
    CRASH = "crash"
    NOTHING = "nothing"


class OnConflict(Enum):
    """What an enqueue does when a live job holds its unique_key."""

    RETURN = "return"
    RAISE = "raise"
    REPLACE = "replace"


class Enqueued(NamedTuple):
    """Where an enqueue ended: the id of the live job, and whether this call made it."""

    id: str
    created: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """A reservation of one message.

    ``token`` is fresh and random per fetch and has to be shown to settle; ``expires_at``
    is on the store's clock. ``suspect``: an earlier lease of this job ended without a
    verdict, so it is to be run alone.
    """

    id: str
    queue: str
    token: str
    expires_at: int
    message: Message
    suspect: bool = False
    created_at: datetime | None = None
    handle: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One finished run that did not succeed, as it is kept for people to read."""

    number: int
    outcome: str
    started_at: int
    finished_at: int
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    output: str = ""
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a job is dead. ``reason`` is one of the stable words of the dead-letter page."""

    reason: str
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    output: str = ""
    fingerprint: str = ""
    charge: Charge = Charge.NOTHING
    attempt: AttemptRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    """How a job ended well (or was skipped or cancelled), kept until its time is over."""

    status: str
    value_json: str = "null"
    output: str = ""
    started_at: int | None = None
    finished_at: int | None = None
    worker: str = ""
    ttl_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """How much waits in a queue, and for how long the oldest ready job has."""

    ready: int = 0
    scheduled: int = 0
    running: int = 0
    suspect: int = 0
    oldest_ready_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """A waiting message as seen without leasing it."""

    id: str
    queue: str
    state: str
    due: int
    message: Message
    lease_expires: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a job ended: ``succeeded``, ``skipped``, ``cancelled`` or ``dead``."""

    status: str
    value_json: str = "null"
    reason: str = ""
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    output: str = ""
    attempts: int = 0
    finished_at: datetime | None = None


class Backend(ABC):
    """One alias of ``BACKENDS``. Instances hold no message state and may be shared by threads."""

    capabilities: Capabilities = Capabilities()

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        self.alias = alias
        self.options = dict(options)

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
        callers get the same message. A suspect comes alone. An empty list means there
        was nothing; trouble is raised.
        """

    @abstractmethod
    def ack(
        self, leases: Sequence[Lease], results: Mapping[str, ResultRecord] | None = None
    ) -> list[Settled]:
        """End jobs that need no further run, keeping the results given by id; one step."""

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

        Without a delay it returns to the place it had.
        """

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

        They become suspect. A suspect that is lost again is charged a crash.
        """

    def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when there may be work in the queues, at the latest after the timeout."""
        del queues
        time.sleep(max(timeout, 0.0))

    def next_due_in(self, queues: Sequence[str]) -> float | None:
        """Seconds until the next waiting message of the queues is due; None when that is unknown."""
        del queues
        return None

    @abstractmethod
    def stats(self, queue: str) -> QueueStats:
        """Count what waits."""

    def peek(self, queue: str, limit: int = 20) -> list[Glimpse]:
        """The next messages of a queue in the order they would be fetched, unleased."""
        raise self._lacking("peek", queue)

    def cancel(self, job_id: str) -> bool:
        """Remove a job that no one runs; False when it runs or is not there."""
        raise self._lacking("cancel", job_id)

    def find(self, job_id: str) -> Glimpse | None:
        """The live message with an id, or None."""
        raise self._lacking("peek", job_id)

    def queues(self) -> list[str]:
        """The names of the queues that hold live messages, as far as they can be told."""
        return []

    def tidy(self, limit: int = 1000) -> int:
        """Housekeeping in one bounded step: what is due is readied, what is over dropped."""
        del limit
        return 0

    def joint_transaction(self) -> AbstractContextManager[Any]:
        """A transaction in which a handler's writes and the settle of its job end together."""
        raise self._lacking("share a transaction with a handler", "atomic=True")

    def longest_atomic(self, lease_seconds: float) -> float | None:
        """The longest run of an ``atomic=True`` job, where a lease cannot be renewed during it."""
        del lease_seconds
        return None

    def works_from_threads(self) -> bool:
        """Whether another thread may use the backend just now, beside a running handler."""
        return True

    def result(self, job_id: str) -> Ended | None:
        """How a job ended, while that is kept, or None."""
        raise self._lacking("keep results", job_id)

    def check(self) -> list[Any]:
        """System check messages about this alias's own set-up."""
        return []

    def _lacking(self, capability: str, about: str) -> NotSupported:
        return NotSupported(
            f"the backend {self.alias!r} ({type(self).__name__}) cannot {capability} ({about})"
        )
