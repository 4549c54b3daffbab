"""The typed events of the package, and ``emit()``, which passes them to subscribers.

A subscriber that fails is logged and changes nothing. ``logs.py`` has the log sentences.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from django.utils.module_loading import import_string

from django_jobs.telemetry.errors import cleaned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# Events of single jobs.


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Event:
    """Something that happened. ``key`` is stable: alerts and log queries rely on it.

    Subclasses look like frozen dataclasses with keyword arguments, but are none: ``@dataclass``
    compiles the methods of each class at import, and for sixty classes that took a tenth of
    the start of every process.
    """

    names: ClassVar[tuple[str, ...]] = ()
    """The names of its fields, in their order."""
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _all: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = tuple(cls.__annotations__)
        cls.names = cls.names + own
        cls._defaults = {**cls._defaults, **{n: vars(cls)[n] for n in own if n in vars(cls)}}
        cls._all = frozenset(cls.names)

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(self._defaults, **fields)
        if self.__dict__.keys() != self._all:
            wrong = ", ".join(sorted(self.__dict__.keys() ^ self._all))
            raise TypeError(f"{type(self).__name__}() lacks, or does not take: {wrong}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an event cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"an event cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *(self.__dict__[name] for name in self.names)))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.names)
        return f"{type(self).__qualname__}({fields})"


class JobEvent(Event):
    """Something that happened to one job."""

    job_id: str
    queue: str
    handler: str
    attempt: int = 0
    trace_id: str = ""


class JobClaimed(JobEvent):
    """A worker has leased a job. It may return the job before starting it."""


class JobStarted(JobEvent):
    """A handler is about to be called. Emitted where it runs: in a child, if there are any."""


class JobSucceeded(JobEvent):
    """A run succeeded and was acked. ``waited``: how long the job had been due before it ran."""

    seconds: float = 0.0
    waited: float = 0.0


class JobRetried(JobEvent):
    """A run failed and the job waits for its next one."""

    delay: float
    error_type: str
    error_message: str
    seconds: float = 0.0
    waited: float = 0.0


class JobDied(JobEvent):
    """A job is a dead letter now."""

    reason: str
    error_type: str = ""
    error_message: str = ""
    seconds: float = 0.0
    waited: float = 0.0


class JobEnded(JobEvent):
    """A job ended without a success and without a death: cancelled or skipped."""

    status: str
    reason: str = ""


class JobReturned(JobEvent):
    """A job was given back without consuming anything: snoozed or (``requeued``) interrupted."""

    delay: float = 0.0
    reason: str = ""
    status: str = "snoozed"


class JobCrashed(JobEvent):
    """A job that ran alone, or was leased to run alone, came to no verdict.

    It is charged a crash and runs again.
    """

    crashes: int
    reason: str
    delay: float


class LeaseLost(JobEvent):
    """A settle came too late: the job has another lease, or it is gone."""


class SettleUnknown(JobEvent):
    """The store did not say before the lease ended whether a settle counted."""


class SettleRefused(JobEvent):
    """The store refused a settle; it is repeated without the texts that may not fit."""

    error: BaseException


class AfterHookFailed(JobEvent):
    """An after-hook raised; the outcome stands."""

    error: BaseException


class CommitHookFailed(JobEvent):
    """A function given to on_commit() by an ``atomic=True`` job raised; the job is done."""

    error: BaseException


class RetryPolicyFailed(JobEvent):
    """A user's retry policy raised; the retry waits as with "exponential"."""

    error: BaseException


# Events of schedules.


class TickDecided(Event):
    """A scheduler decided a tick. ``decision`` is one of the words of the history."""

    schedule: str
    tick: str
    decision: str
    reason: str = ""
    job_id: str = ""


class ScheduleFailed(Event):
    """A schedule could not be decided; it is looked at again at the next tick."""

    schedule: str
    error: BaseException


class ScheduleUndecided(Event):
    """A tick has waited some seconds for a dependency that no scheduler decides; emitted once."""

    schedule: str
    why: str


class ClockWasAhead(Event):
    """Schedules were decided by a clock that was ahead of the store's: they start over.

    ``seconds``: by how much, at most.
    """

    schedules: int
    seconds: float


class ScheduleUnreadable(Event):
    """A schedule of the admin was valid when saved and no longer is: it is left out."""

    schedule: str
    why: str


class ScheduleOfOtherCode(Event):
    """The row of a schedule was written by another version of the code, newer or older."""

    schedule: str
    what: str


class SchedulerStarted(Event):
    """A scheduler begins to tick."""


class SchedulerStopped(Event):
    """A scheduler has ended normally."""

    why: str


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
    "LogLost",
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
    "WorkerBroken",
    "WorkerStarted",
    "WorkerStopped",
    "WorkerStopping",
    "WorkerWaiting",
    "emit",
    "is_wanted",
    "subscribe",
    "subscribe_path",
    "unsubscribe",
]


class Reaped(Event):
    """Jobs whose lease ended without a verdict were returned."""

    backend: str
    count: int


class PushLost(Event):
    """A transaction was committed, and its jobs did not reach the broker."""

    backend: str
    job_ids: str
    count: int
    error: BaseException


class RelayLost(Event):
    """A relay cannot move jobs out of an outbox, or of one queue in it; emitted once per outage.

    ``queue`` is ``*`` where no queue can be moved.
    """

    backend: str
    error: BaseException
    queue: str = "*"


class RelayFound(Event):
    """A relay can move jobs out of the outbox, or the queue in it, again."""

    backend: str
    seconds: float
    queue: str = "*"


class PushRefused(Event):
    """A backend took other jobs of an outbox and refused this one, which is tried again."""

    backend: str
    queue: str
    handler: str
    job_id: str
    refusals: int
    error: BaseException


class StoreLost(Event):
    """The store does not answer, or answers with an error; emitted once per outage.

    ``problem``: which of the two, in words.
    """

    backend: str
    error: BaseException
    problem: str


class StoreFound(Event):
    """The store can be used again."""

    backend: str
    seconds: float


class BreakerOpened(Event):
    """After too many failures in a row a breaker lets nothing pass for a while.

    ``kind``: what it guards. ``queue``: a queue, against refused messages; ``handler``: a
    handler; ``backend``: calls to a store, or for one queue of it. ``subject``: its name.
    """

    kind: str
    backend: str
    subject: str
    failures: int
    seconds: float


class BreakerClosed(Event):
    """A breaker lets everything pass again."""

    kind: str
    backend: str
    subject: str


class WorkerWaiting(Event):
    """A worker waits before it begins to serve; emitted once."""

    backend: str
    why: str


class WorkerStarted(Event):
    """A worker begins to serve."""

    backend: str
    queues: str


class WorkerStopping(Event):
    """A worker takes no more jobs and lets the running ones finish."""

    running: int
    why: str


class WorkerStopped(Event):
    """A worker ends."""

    backend: str
    processed: int
    why: str


class WorkerBroken(Event):
    """A worker has to end because of an error of its own."""

    backend: str
    why: str


class ChildDied(Event):
    """A child of a worker ended by itself, or was killed by its parent."""

    pid: int
    how: str
    why: str
    job_id: str
    returned: int


class ChildRecycled(Event):
    """A child of a worker has reached a limit: it is replaced, and nothing is charged."""

    pid: int
    jobs: int
    why: str


class ExitHooksCut(Event):
    """The ``atexit`` hooks in a child took too long and were cut off."""

    pid: int
    seconds: float


class ReceiverFailed(Event):
    """A receiver of a public signal raised; the others were still called."""

    signal: str
    receiver: str
    about: str
    error: BaseException


class SignalLost(Event):
    """A public signal did not reach all of its receivers. It is not sent again."""

    signal: str
    about: str
    why: str


class LogLost(Event):
    """Log records were dropped: more came than the log accepted or the buffer could hold."""

    count: int


_subscribers: dict[Callable[[Event], None], Callable[[type[Event]], bool]] = {}
_paths: list[tuple[str, str]] = []
"""Dotted paths of subscribers that are not imported yet, and of their ``wants``."""


def _everything(_kind: type[Event]) -> bool:
    return True


def subscribe(
    subscriber: Callable[[Event], None], wants: Callable[[type[Event]], bool] = _everything
) -> None:
    """Call ``subscriber`` with every event. ``wants``: which kinds it handles now."""
    _subscribers.setdefault(subscriber, wants)


def subscribe_path(subscriber: str, wants: str) -> None:
    """The same for dotted paths, imported at the first event or call of ``is_wanted()``."""
    _paths.append((subscriber, wants))


def _import_subscribers() -> None:
    for subscriber, wants in tuple(_paths):
        subscribe(import_string(subscriber), import_string(wants))
    _paths.clear()  # last, so that no other thread misses a subscriber meanwhile


def unsubscribe(subscriber: Callable[[Event], None]) -> None:
    """Stop calling ``subscriber``."""
    if _paths:  # or the subscriber would be added by its path at the next event
        _import_subscribers()
    _subscribers.pop(subscriber, None)


def is_wanted(kind: type[Event]) -> bool:
    """Whether any subscriber handles this kind. Frequent events ask before they are built."""
    if _paths:
        _import_subscribers()
    for wants in _subscribers.values():  # noqa: SIM110 - asked for every job; any() takes thrice as long
        if wants(kind):
            return True
    return False


def emit(event: Event) -> None:
    """Pass an event to every subscriber."""
    if _paths:
        _import_subscribers()
    for subscriber in tuple(_subscribers):
        try:
            subscriber(event)
        except Exception as error:
            # Not a sentence of logs.py, because the subscriber that raised may be the log itself.
            logging.getLogger("django_jobs").exception(
                "an event subscriber raised",
                extra={"key": "subscriber.failed"},
                exc_info=cleaned(error),
            )


# Failures beside the jobs, which do not change their outcome but need a look.


class HeartbeatFailed(Event):
    """A worker could not write its row, which shows operators that it is alive."""

    backend: str
    error: BaseException


class HandlerUnregistered(Event):
    """A handler that ``HANDLERS`` names could not be registered."""

    handler: str
    error: BaseException


class TaskReceiverFailed(Event):
    """A receiver of one of Django's task signals raised what Django does not catch."""

    task_id: str
    error: BaseException


class AttemptsUnreadable(Event):
    """The earlier attempts of a task could not be read; it runs without them."""

    task_id: str
    error: BaseException


class TaskModuleFailed(Event):
    """The module of a task that waits could not be imported."""

    named: str
    error: BaseException


class LimitsUnreadable(Event):
    """The limits of queues could not be read; the last ones read stay in force."""

    backend: str
    error: BaseException


class RateUnreadable(Event):
    """The rate limit set for a queue cannot be read; the one of the settings holds."""

    backend: str
    queue: str
    rate: str


class DutyFailed(Event):
    """One of a worker's duties failed, and is tried again; its jobs and other duties go on."""

    backend: str
    duty: str
    error: BaseException


class PushPutOff(Event):
    """A relay cannot judge a job of the outbox, and leaves it to another relay."""

    backend: str
    queue: str
    handler: str
    job_id: str
    delay: float
    error: BaseException


class RecordsDropped(Event):
    """A full store drops the results and the failed runs of jobs, which are settled."""

    backend: str
    queue: str
    error: BaseException


class DeadLetterCopyFailed(Event):
    """A dead letter could not be copied from Redis, where it is kept."""

    job_id: str
    error: BaseException


class DeadLettersPurgeFailed(Event):
    """Dead letters older than ``DEAD_LETTER_TTL`` could not be deleted; it is tried again."""

    backend: str
    error: BaseException


class MessagesRefused(Event):
    """A starting worker would refuse some of the waiting messages, all for one reason."""

    backend: str
    reason: str
    count: int
    looked_at: int
    queues: str
    why: str
    way_out: str


class MessagesUnreadable(Event):
    """A starting worker could not read the waiting messages; it starts anyway."""

    backend: str
    error: BaseException


class BackendSilent(Event):
    """A backend did not answer an operator's question about a queue, or about its queues."""

    backend: str
    queue: str
    why: str


class CollectorUnused(Event):
    """A collector that ``METRICS`` names could not be made; the others are used."""

    collector: str
    error: BaseException


class CollectorFailed(Event):
    """A collector raised; the metrics that it was to add are lost, those of others are not."""

    collector: str
    error: BaseException


class GaugesWatchFailed(Event):
    """A collector raised when it was given the gauges; it counts all the same."""

    collector: str
    error: BaseException


class GaugesUnreadable(Event):
    """The stores could not be read for the gauges; none are reported until they can be."""

    error: BaseException
