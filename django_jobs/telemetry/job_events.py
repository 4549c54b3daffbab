"""What happens to single jobs. Everybody imports these from ``events``."""

from __future__ import annotations

from dataclasses import dataclass


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
class JobClaimed(JobEvent):
    """A worker has leased a job. It may give it back before it has started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(JobEvent):
    """A handler is about to be called. Told where it runs: in a child, if there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded(JobEvent):
    """A run ended well and was acked. It had ``waited`` so long since it was due."""

    seconds: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetried(JobEvent):
    """A run failed and the job waits for its next one."""

    delay: float
    error_type: str
    error_message: str
    seconds: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDied(JobEvent):
    """A job is a dead letter now."""

    reason: str
    error_type: str = ""
    error_message: str = ""
    seconds: float = 0.0
    waited: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(JobEvent):
    """A job ended without a success and without a death: cancelled or skipped."""

    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReturned(JobEvent):
    """A job was given back without consuming anything: snoozed or (``requeued``) interrupted."""

    delay: float = 0.0
    reason: str = ""
    status: str = "snoozed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCrashed(JobEvent):
    """A job was to run alone and came to no verdict. It was charged a crash and runs again."""

    crashes: int
    reason: str
    delay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(JobEvent):
    """A settle came too late: somebody else holds the job, or it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleUnknown(JobEvent):
    """The store did not say before the lease ended whether a settle counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleRefused(JobEvent):
    """The store refused a settle as it was; it is settled without the texts that may not fit."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterHookFailed(JobEvent):
    """An after-hook raised; the outcome stands."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHookFailed(JobEvent):
    """A function given to on_commit() by an ``atomic=True`` job raised; the job is done."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicyFailed(JobEvent):
    """A user's retry policy raised; the retry waits as with "exponential"."""

    error: BaseException
