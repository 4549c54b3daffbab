"""Typed facts, and the one way to tell them.

Whoever wants to know subscribes; a subscriber that fails is logged and changes nothing.
The sentences are in ``logs.py``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened. ``key`` is stable: alerts and log queries rely on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """Something that happened to one job."""

    job_id: str
    queue: str
    handler: str
    attempt: int = 0
    trace_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded(JobEvent):
    """A run ended well and was acked."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetried(JobEvent):
    """A run failed and the job waits for its next one."""

    delay: float
    error_type: str
    error_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDied(JobEvent):
    """A job is a dead letter now."""

    reason: str
    error_type: str = ""
    error_message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(JobEvent):
    """A job ended without a success and without a death: cancelled or skipped."""

    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReturned(JobEvent):
    """A job was given back without consuming anything: snoozed or interrupted."""

    delay: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCrashed(JobEvent):
    """The process of a job died under it. It was charged a crash and runs again."""

    crashes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(JobEvent):
    """A settle came too late: somebody else holds the job, or it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleUnknown(JobEvent):
    """The store did not say before the lease ended whether a settle counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterHookFailed(JobEvent):
    """An after-hook raised; the outcome stands."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicyFailed(JobEvent):
    """A user's retry policy raised; the job is retried at once."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped(Event):
    """Jobs whose lease ended without a verdict were returned."""

    backend: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLost(Event):
    """The store does not answer; told once per outage."""

    backend: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFound(Event):
    """The store answers again."""

    backend: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker begins to serve."""

    backend: str
    queues: str


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
class ReceiverFailed(Event):
    """A receiver of a public signal raised; the others were told all the same."""

    signal: str
    receiver: str
    job_id: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalLost(Event):
    """A public signal did not reach all of its receivers. It is not sent again."""

    signal: str
    job_id: str
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
    return any(wants(kind) for wants in _subscribers.values())


def emit(event: Event) -> None:
    """Tell every subscriber."""
    for subscriber in tuple(_subscribers):
        try:
            subscriber(event)
        except Exception:
            logging.getLogger("django_jobs").exception(
                "an event subscriber raised", extra={"key": "subscriber.failed"}
            )
