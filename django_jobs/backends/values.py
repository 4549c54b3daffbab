"""The plain values that backends and workers exchange.

Values made for every job are named tuples, which cost a third of a frozen dataclass.
"""

from __future__ import annotations

import time
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from django_jobs.backends.breakers import Circuit
    from django_jobs.wire.envelope import Message


class Capabilities(NamedTuple):
    """What a backend can do. Jobs that need more are refused."""

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
    keys: bool = False
    accounts: bool = False
    breakers: bool = False

    def names(self) -> frozenset[str]:
        return frozenset(name for name in self._fields if getattr(self, name))


class Settled(Enum):
    """The answer to a settle: it counted, it came too late, or the outcome is unknown."""

    SETTLED = "settled"
    LOST = "lost"
    UNKNOWN = "unknown"


CLAIM_BYTES = 16 << 20
"""A claim takes no more jobs once their bodies have this many bytes."""


NOT_KEPT = "not kept: "
"""Replaces a return value that is not kept, followed by the reason.

No JSON begins so. Stores keep it as they keep any value.
"""


def why_not_kept(value_json: str) -> str:
    """Why a return value is not kept; empty if it is."""
    return value_json.removeprefix(NOT_KEPT) if value_json.startswith(NOT_KEPT) else ""


class Charge(Enum):
    """What a give-back consumes.

    ``SUSPICION`` consumes nothing, but the job runs alone next. ``PUT_OFF`` consumes nothing
    either: the worker could not judge the message, and the store keeps when that first happened
    (``Header.put_off_since``) until the job is returned after a run.
    """

    ATTEMPT = "attempt"
    CRASH = "crash"
    NOTHING = "nothing"
    SUSPICION = "suspicion"
    PUT_OFF = "put-off"


class Evidence(Enum):
    """What a settled delivery shows about its queue and its handler.

    ``REFUSED``: the message was refused. The others were accepted: ``WORKED`` and ``FAILED`` after
    a run of the handler, ``BELIEVED`` without one. ``NOTHING``: the message was not checked.
    """

    REFUSED = "refused"
    WORKED = "worked"
    FAILED = "failed"
    BELIEVED = "believed"
    NOTHING = "nothing"


class Standing(NamedTuple):
    """The state of a circuit breaker at a moment on the store's clock."""

    kind: str
    name: str
    circuit: Circuit
    now: int


class OnConflict(Enum):
    """What an enqueue does when a live job holds its unique_key."""

    RETURN = "return"
    RAISE = "raise"
    REPLACE = "replace"


class Enqueued(NamedTuple):
    """The result of an enqueue: the id of the live job, and whether this call made it."""

    id: str
    created: bool


class HousekeepingDue(NamedTuple):
    """Which housekeeping has something to do."""

    reap: bool
    clean_up: bool


class Lease(NamedTuple):
    """A reservation of one message.

    ``token`` is fresh and random per fetch and is needed to settle; ``expires_at``
    is on the store's clock. ``suspect``: an earlier lease of this job ended without a
    verdict, so it must run alone. ``fence`` grows with every lease for a key.
    ``done_by``: the job that already did the work of this idempotency key.
    ``probe``: a breaker lets nothing else pass until this one is settled.
    ``cancelled``: the job was asked to stop before this lease. ``replayed``: the job had already
    ended, so this is a copy. ``keyed``: the claim checked the job's keys against
    those of others; False if its row showed no keys, and then the signed terms decide.
    ``start_by``: for a queue with a rate limit, the moment of ``time.monotonic()`` after which
    this lease must not be run, because its start is counted until then. ``counted``: that moment
    on the store's clock.
    """

    id: str
    queue: str
    token: str
    expires_at: int
    message: Message
    suspect: bool = False
    created_at: datetime | None = None
    handle: Any = None
    fence: int | None = None
    done_by: str = ""
    probe: bool = False
    cancelled: bool = False
    replayed: bool = False
    keyed: bool = True
    start_by: float | None = None
    counted: int = 0

    @property
    def is_late(self) -> bool:
        """Whether it must not be run any more, because its start would not be counted."""
        return self.start_by is not None and time.monotonic() > self.start_by


class AttemptRecord(NamedTuple):
    """A run that did not succeed, as kept for people to read."""

    number: int
    outcome: str
    started_at: int
    finished_at: int
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    output: str = ""
    worker: str = ""


class Failure(NamedTuple):
    """Why a job is dead. ``reason`` is one of the stable words of the dead-letter page."""

    reason: str
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    output: str = ""
    fingerprint: str = ""
    charge: Charge = Charge.NOTHING
    attempt: AttemptRecord | None = None


class ResultRecord(NamedTuple):
    """How a job succeeded, was skipped or cancelled; kept until its retention ends."""

    status: str
    value_json: str = "null"
    output: str = ""
    started_at: int | None = None
    finished_at: int | None = None
    worker: str = ""
    ttl_seconds: float = 86_400.0


class QueueStats(NamedTuple):
    """How many jobs wait in a queue, and for how long the oldest ready one has.

    ``at_least``: the names of the counts that are lower bounds, because counting stopped there.
    """

    ready: int = 0
    scheduled: int = 0
    running: int = 0
    blocked: int = 0
    suspect: int = 0
    oldest_ready_seconds: float = 0.0
    at_least: tuple[str, ...] = ()


class Glimpse(NamedTuple):
    """A waiting message as seen without leasing it."""

    id: str
    queue: str
    state: str
    due: int
    message: Message
    lease_expires: int | None = None
    extra: Mapping[str, Any] = MappingProxyType({})


class Ended(NamedTuple):
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


def with_reason(reason: str, output: str) -> str:
    """The output to keep for a cancelled job: its first line is the reason, even if that is empty.

    So printed text is never taken for the reason.
    """
    line = " ".join(reason.splitlines())
    return f"{line}\n{output}" if output else line


def reason_of(status: str, output: str) -> str:
    """Why a job was cancelled or skipped: the first line of its kept output."""
    return "" if status == "succeeded" else output.partition("\n")[0]


class Account(NamedTuple):
    """All that a store knows of one job, from its enqueue to its end.

    ``attempts`` are the failed runs with a record, oldest first; ``failed_attempts`` counts all
    of them. ``started_at`` and ``worker`` belong to the run that goes on, or that ended the job
    without failing. Moments are microseconds.
    """

    id: str
    queue: str
    handler: str
    status: str
    body: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    failed_attempts: int = 0
    worker: str = ""
    started_at: int | None = None
    finished_at: int | None = None
    value_json: str = "null"
    reason: str = ""
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    output: str = ""
