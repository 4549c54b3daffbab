"""What went wrong beside the jobs and changes nothing for them: told, so that somebody looks."""

from __future__ import annotations

from dataclasses import dataclass

from django_jobs.telemetry.job_events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUnseen(Event):
    """A worker could not write its row, by which operators see it."""

    backend: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerUnregistered(Event):
    """A handler that ``HANDLERS`` names could not be registered."""

    handler: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReceiverFailed(Event):
    """A receiver of one of Django's task signals raised what Django does not catch."""

    task_id: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsUnread(Event):
    """The earlier attempts of a task could not be read; it runs without them."""

    task_id: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskModuleFailed(Event):
    """The module of a task that waits could not be imported."""

    named: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsUnread(Event):
    """The limits of queues could not be read; those known last hold on."""

    backend: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class RateUnread(Event):
    """The rate limit that was set for a queue cannot be read; that of the settings holds."""

    backend: str
    queue: str
    rate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyFailed(Event):
    """One of a worker's duties failed, and is tried again; its jobs and other duties go on."""

    backend: str
    duty: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPutOff(Event):
    """A relay cannot judge a job of the outbox, and leaves it for one that can."""

    backend: str
    queue: str
    handler: str
    job_id: str
    delay: float
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsUnkept(Event):
    """A store without room settles jobs without results and records of failed runs."""

    backend: str
    queue: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterStays(Event):
    """A dead letter could not be copied from Redis, where it is kept."""

    job_id: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersUnswept(Event):
    """Dead letters older than ``DEAD_LETTER_TTL`` could not be deleted; it is tried again."""

    backend: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesUnfit(Event):
    """A worker that starts would not run some of the messages that wait, all for one reason."""

    backend: str
    reason: str
    count: int
    looked_at: int
    queues: str
    why: str
    way_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesUnseen(Event):
    """A worker that starts could not look at the messages that wait; it works all the same."""

    backend: str
    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSilent(Event):
    """A backend did not tell an operator of a queue, or of its queues."""

    backend: str
    queue: str
    why: str
