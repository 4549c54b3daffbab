"""Typed facts, and the one way to tell them.

Whoever wants to know subscribes; a subscriber that fails is logged and changes nothing.
The sentences are in ``logs.py``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_jobs.telemetry.errors import cleaned
from django_jobs.telemetry.job_events import (
    AfterHookFailed,
    CommitHookFailed,
    Event,
    JobClaimed,
    JobCrashed,
    JobDied,
    JobEnded,
    JobEvent,
    JobRetried,
    JobReturned,
    JobStarted,
    JobSucceeded,
    LeaseLost,
    RetryPolicyFailed,
    SettleRefused,
    SettleUnknown,
)
from django_jobs.telemetry.schedule_events import (
    ClockWasAhead,
    ScheduleFailed,
    ScheduleOfOtherCode,
    SchedulerStarted,
    SchedulerStopped,
    ScheduleUndecided,
    ScheduleUnreadable,
    TickDecided,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AfterHookFailed",
    "BreakerClosed",
    "BreakerOpened",
    "ChildDied",
    "ChildRecycled",
    "ClockWasAhead",
    "CommitHookFailed",
    "Event",
    "ExitHooksCut",
    "JobClaimed",
    "JobCrashed",
    "JobDied",
    "JobEnded",
    "JobEvent",
    "JobRetried",
    "JobReturned",
    "JobStarted",
    "JobSucceeded",
    "LeaseLost",
    "PushLost",
    "PushRefused",
    "Reaped",
    "ReceiverFailed",
    "RelayFound",
    "RelayLost",
    "RetryPolicyFailed",
    "ScheduleFailed",
    "ScheduleOfOtherCode",
    "ScheduleUndecided",
    "ScheduleUnreadable",
    "SchedulerStarted",
    "SchedulerStopped",
    "SettleRefused",
    "SettleUnknown",
    "SignalLost",
    "StoreFound",
    "StoreLost",
    "TickDecided",
    "Unsaid",
    "WorkerBroken",
    "WorkerStarted",
    "WorkerStopped",
    "WorkerStopping",
    "WorkerWaiting",
    "emit",
    "is_wanted",
    "subscribe",
    "unsubscribe",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped(Event):
    """Jobs whose lease ended without a verdict were returned."""

    backend: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PushLost(Event):
    """A transaction was committed, and its jobs did not reach the broker."""

    backend: str
    job_ids: str
    count: int
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLost(Event):
    """A relay cannot move an outbox on, or one queue of it; told once per outage.

    ``queue`` is ``*`` where no queue can be moved.
    """

    backend: str
    error: BaseException
    queue: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayFound(Event):
    """A relay moves an outbox on again, or the queue of it that stood still."""

    backend: str
    seconds: float
    queue: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRefused(Event):
    """A backend took other jobs of an outbox and refused this one, which is tried again."""

    backend: str
    queue: str
    handler: str
    job_id: str
    refusals: int
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLost(Event):
    """The store does not answer, or answers with an error; told once per outage.

    ``trouble``: which of them, in words.
    """

    backend: str
    error: BaseException
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFound(Event):
    """The store can be used again."""

    backend: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOpened(Event):
    """So much went wrong in a row that nothing passes for a while.

    ``kind``: what it guards. ``queue``: a queue against messages that are refused;
    ``handler``: a handler; ``backend``: the dealings with a store, or with one queue of it.
    ``subject``: which one.
    """

    kind: str
    backend: str
    subject: str
    failures: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed(Event):
    """A breaker lets everything pass again."""

    kind: str
    backend: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerWaiting(Event):
    """A worker waits before it begins to serve; told once."""

    backend: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker begins to serve."""

    backend: str
    queues: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopping(Event):
    """A worker takes no more jobs and lets those end that run."""

    running: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(Event):
    """A worker ends."""

    backend: str
    processed: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBroken(Event):
    """A worker has to end because its own machinery failed."""

    backend: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDied(Event):
    """A child of a worker ended, of its own or because its parent killed it."""

    pid: int
    how: str
    why: str
    job_id: str
    returned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecycled(Event):
    """A child of a worker has reached a limit: it is replaced, and nothing is charged."""

    pid: int
    jobs: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitHooksCut(Event):
    """What libraries registered with ``atexit`` took too long in a child, which ended without."""

    pid: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverFailed(Event):
    """A receiver of a public signal raised; the others were told all the same."""

    signal: str
    receiver: str
    about: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalLost(Event):
    """A public signal did not reach all of its receivers. It is not sent again."""

    signal: str
    about: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaid(Event):
    """So much happened while nobody took it down that it could not all be kept."""

    count: int


_subscribers: dict[Callable[[Event], None], Callable[[type[Event]], bool]] = {}


def _everything(_kind: type[Event]) -> bool:
    return True


def subscribe(
    subscriber: Callable[[Event], None], wants: Callable[[type[Event]], bool] = _everything
) -> None:
    """Let a callable be told every event. ``wants``: which kinds mean anything to it now."""
    _subscribers.setdefault(subscriber, wants)


def unsubscribe(subscriber: Callable[[Event], None]) -> None:
    """Tell it no more."""
    _subscribers.pop(subscriber, None)


def is_wanted(kind: type[Event]) -> bool:
    """Whether an event of a kind would mean anything to anybody; what comes often asks first."""
    for wants in _subscribers.values():  # noqa: SIM110 - asked for every job; any() takes thrice as long
        if wants(kind):
            return True
    return False


def emit(event: Event) -> None:
    """Tell every subscriber."""
    for subscriber in tuple(_subscribers):
        try:
            subscriber(event)
        except Exception as error:
            logging.getLogger("django_jobs").exception(
                "an event subscriber raised",
                extra={"key": "subscriber.failed"},
                exc_info=cleaned(error),
            )
