"""The log: its sentences, and how events become records.

Each record carries ``key`` and the event's fields as attributes, for structured logs. With any
formatter it is one line without control characters, whatever names and errors contain.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from django_jobs.telemetry import events
from django_jobs.telemetry.errors import cleaned, in_sentence, sentence_of
from django_jobs.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.telemetry.events import Event


# Every sentence of the log with its level and its stable key.

_JOB = "%(handler)s %(job_id)s on %(queue)s"
_BREAKER = "the breaker of the %(kind)s %(subject)s (%(backend)s)"
_ERROR = "%(wrong)s"
_MESSAGES = "%(count)d of the first %(looked_at)d messages that wait on %(backend)s"

SENTENCES: dict[type[Event], tuple[str, int, str]] = {
    events.JobClaimed: ("job.claimed", logging.DEBUG, f"{_JOB} was claimed"),
    events.JobStarted: ("job.started", logging.DEBUG, f"{_JOB} starts, attempt %(attempt)d"),
    events.JobSucceeded: ("job.succeeded", logging.INFO, f"{_JOB} succeeded in %(seconds).3f s"),
    events.JobRetried: (
        "job.retried",
        logging.WARNING,
        f"{_JOB} failed in attempt %(attempt)d and is retried in %(delay).1f s: {_ERROR}",
    ),
    events.JobDied: (
        "job.dead",
        logging.CRITICAL,
        f"{_JOB} is dead (%(reason)s): {_ERROR}",
    ),
    events.JobEnded: ("job.ended", logging.INFO, f"{_JOB} was %(status)s: %(reason)s"),
    events.JobReturned: (
        "job.returned",
        logging.INFO,
        f"{_JOB} was given back for %(delay).1f s: %(reason)s",
    ),
    events.JobCrashed: (
        "job.crashed",
        logging.WARNING,
        f"{_JOB} crashed (%(crashes)d so far) and is run again in %(delay).1f s: %(reason)s",
    ),
    events.LeaseLost: (
        "lease.lost",
        logging.WARNING,
        f"{_JOB} was settled too late: its lease belongs to another worker or it is gone",
    ),
    events.SettleRefused: (
        "settle.refused",
        logging.ERROR,
        f"the store refused the end of {_JOB}; it is settled without what may not fit: %(error)s",
    ),
    events.SettleUnknown: (
        "settle.unknown",
        logging.ERROR,
        f"no answer came in time whether {_JOB} was settled; it may run again",
    ),
    events.AfterHookFailed: (
        "hook.failed",
        logging.ERROR,
        f"the after-hook of {_JOB} raised; the outcome stands",
    ),
    events.CommitHookFailed: (
        "commit_hook.failed",
        logging.ERROR,
        f"a function that {_JOB} gave to on_commit() raised after the commit; the job is done",
    ),
    events.RetryPolicyFailed: (
        "policy.failed",
        logging.ERROR,
        f"the retry policy of {_JOB} raised; the retry waits as with 'exponential'",
    ),
    events.Reaped: (
        "lease.reaped",
        logging.WARNING,
        "%(count)d jobs of %(backend)s were returned: their lease ended without a verdict",
    ),
    events.PushLost: (
        "push.lost",
        logging.CRITICAL,
        "not pushed after the commit, and lost unless enqueued again: %(job_ids)s: %(error)s",
    ),
    events.RelayLost: (
        "relay.lost",
        logging.ERROR,
        "the outbox of %(backend)s (queue %(queue)s) does not move: %(error)s; it is tried again",
    ),
    events.RelayFound: (
        "relay.found",
        logging.WARNING,
        "the outbox of %(backend)s (queue %(queue)s) moves again after %(seconds).1f s",
    ),
    events.PushRefused: (
        "relay.refused",
        logging.ERROR,
        f"%(backend)s refused {_JOB}, and accepted others (%(refusals)d so far): %(error)s",
    ),
    events.StoreLost: (
        "store.lost",
        logging.ERROR,
        "%(problem)s: %(error)s; the worker keeps trying",
    ),
    events.StoreFound: (
        "store.found",
        logging.WARNING,
        "the backend %(backend)s works again after %(seconds).1f s",
    ),
    events.BreakerOpened: (
        "breaker.opened",
        logging.ERROR,
        f"{_BREAKER} is open after %(failures)d failures: nothing passes for %(seconds).0f s",
    ),
    events.BreakerClosed: (
        "breaker.closed",
        logging.WARNING,
        f"{_BREAKER} is closed again",
    ),
    events.WorkerWaiting: (
        "worker.waiting",
        logging.INFO,
        "not serving %(backend)s yet, and waiting: %(why)s",
    ),
    events.WorkerStarted: (
        "worker.started",
        logging.INFO,
        "serving %(queues)s of the backend %(backend)s",
    ),
    events.WorkerStopping: (
        "worker.stopping",
        logging.INFO,
        "stopping, because %(why)s: %(running)d jobs still run; a second signal would stop them",
    ),
    events.WorkerStopped: (
        "worker.stopped",
        logging.INFO,
        "stopped after %(processed)d jobs: %(why)s",
    ),
    events.WorkerBroken: (
        "worker.broken",
        logging.ERROR,
        "the worker of the backend %(backend)s cannot go on: %(why)s",
    ),
    events.ChildDied: (
        "worker.child_died",
        logging.WARNING,
        "child %(pid)d died (%(why)s): %(how)s; it ran: %(job_id)s; not begun: %(returned)d",
    ),
    events.ChildRecycled: (
        "worker.child_recycled",
        logging.INFO,
        "child %(pid)d is replaced after %(jobs)d jobs: %(why)s",
    ),
    events.ExitHooksCut: (
        "worker.exit_hooks_cut",
        logging.WARNING,
        "child %(pid)d ends before its exit hooks, which took longer than %(seconds)g s",
    ),
    events.TickDecided: (
        "cron.tick",
        logging.INFO,
        "%(schedule)s at %(tick)s: %(decision)s %(job_id)s %(reason)s",
    ),
    events.ScheduleFailed: (
        "cron.schedule_failed",
        logging.ERROR,
        "the schedule %(schedule)s could not be decided: %(error)s",
    ),
    events.ScheduleUndecided: (
        "cron.schedule_undecided",
        logging.WARNING,
        "the schedule %(schedule)s is not decided: it %(why)s",
    ),
    events.ClockWasAhead: (
        "cron.clock_was_ahead",
        logging.WARNING,
        "a clock that was %(seconds).0f s ahead decided %(schedules)d schedules; these start anew",
    ),
    events.ScheduleUnreadable: (
        "cron.schedule_unreadable",
        logging.WARNING,
        "the schedule %(schedule)s of the admin is left out: %(why)s",
    ),
    events.ScheduleOfOtherCode: (
        "cron.schedule_of_other_code",
        logging.WARNING,
        "other code reads the schedule %(schedule)s differently: %(what)s",
    ),
    events.SchedulerStarted: ("cron.started", logging.INFO, "the scheduler ticks"),
    events.SchedulerStopped: ("cron.stopped", logging.INFO, "the scheduler stopped: %(why)s"),
    events.ReceiverFailed: (
        "receiver.failed",
        logging.ERROR,
        "the receiver %(receiver)s of %(signal)s raised an exception, for %(about)s",
    ),
    events.SignalLost: (
        "signal.lost",
        logging.ERROR,
        "%(signal)s did not reach all its receivers, for %(about)s: %(why)s",
    ),
    events.HeartbeatFailed: (
        "worker.heartbeat_failed",
        logging.WARNING,
        "the worker of %(backend)s goes on, but operators may not see it: %(error)s",
    ),
    events.HandlerUnregistered: (
        "handler.unregistered",
        logging.ERROR,
        "HANDLERS['%(handler)s'] was not registered: %(error)s",
    ),
    events.TaskReceiverFailed: (
        "task.receiver_failed",
        logging.ERROR,
        "a receiver of a signal of the task %(task_id)s raised",
    ),
    events.AttemptsUnreadable: (
        "task.attempts_unreadable",
        logging.ERROR,
        "the earlier attempts of the task %(task_id)s cannot be read",
    ),
    events.TaskModuleFailed: (
        "task.module_failed",
        logging.WARNING,
        "the module %(named)s of a waiting task cannot be imported",
    ),
    events.LimitsUnreadable: (
        "limits.unreadable",
        logging.WARNING,
        "the limits of the queues of %(backend)s could not be read: %(error)s",
    ),
    events.RateUnreadable: (
        "limits.rate_unreadable",
        logging.ERROR,
        "the rate limit of %(queue)s (%(backend)s), %(rate)s, cannot be read; the setting applies",
    ),
    events.DutyFailed: (
        "duty.failed",
        logging.ERROR,
        "the worker of %(backend)s goes on, but failed to %(duty)s: %(error)s",
    ),
    events.PushPutOff: (
        "relay.put_off",
        logging.WARNING,
        f"the relay of %(backend)s cannot judge {_JOB} and tries again in %(delay).1f s: %(error)s",
    ),
    events.DeadLetterCopyFailed: (
        "dead_letter.copy_failed",
        logging.WARNING,
        "the dead letter %(job_id)s could not be copied and stays in Redis: %(error)s",
    ),
    events.MessagesRefused: (
        "messages.refused",
        logging.WARNING,
        f"{_MESSAGES} would not be run here (%(reason)s, in %(queues)s): %(why)s. %(way_out)s",
    ),
    events.MessagesUnreadable: (
        "messages.unreadable",
        logging.WARNING,
        "the waiting messages of the backend %(backend)s could not be read: %(error)s",
    ),
    events.BackendSilent: (
        "backend.silent",
        logging.WARNING,
        "the queue %(queue)s of the backend %(backend)s cannot be read: %(why)s",
    ),
    events.RecordsDropped: (
        "records.dropped",
        logging.WARNING,
        "%(backend)s is full: it drops results and failed runs of %(queue)s: %(error)s",
    ),
    events.DeadLettersPurgeFailed: (
        "dead_letters.purge_failed",
        logging.WARNING,
        "old dead letters of the backend %(backend)s could not be deleted: %(error)s",
    ),
    events.CollectorUnused: (
        "metrics.unused",
        logging.ERROR,
        "METRICS: %(collector)s is not used",
    ),
    events.CollectorFailed: (
        "metrics.failed",
        logging.ERROR,
        "the collector %(collector)s raised",
    ),
    events.GaugesWatchFailed: (
        "gauges.watch_failed",
        logging.ERROR,
        "watch() of %(collector)s raised: it exports no gauges",
    ),
    events.GaugesUnreadable: (
        "gauges.unreadable",
        logging.ERROR,
        "the state of the queues cannot be read",
    ),
    events.LogLost: (
        "log.lost",
        logging.ERROR,
        "%(count)d log records were dropped: the log did not accept them for a while",
    ),
}
"""Event → (key, level, sentence)."""


WITH_TRACEBACK = {
    *("duty.failed", "hook.failed", "commit_hook.failed", "policy.failed", "receiver.failed"),
    *("task.receiver_failed", "task.attempts_unreadable", "task.module_failed"),
    *("metrics.unused", "metrics.failed", "gauges.watch_failed", "gauges.unreadable"),
}


logger = logging.getLogger("django_jobs")

_FREE_TEXTS = frozenset({"why", "what", "problem"})
"""Fields that may quote an error; the other texts are names, or are redacted already."""


_outlets: list[Callable[[Callable[[], object]], None]] = []


@contextmanager
def through(outlet: Callable[[Callable[[], object]], None]) -> Iterator[None]:
    """In the block ``outlet`` writes the records, so that the caller does not wait for the log."""
    _outlets.append(outlet)
    try:
        yield
    finally:
        _outlets.remove(outlet)


def wants(kind: type[Event]) -> bool:
    """Whether the log takes records of a kind of events."""
    sentence = SENTENCES.get(kind)
    return sentence is not None and logger.isEnabledFor(sentence[1])


def write(event: Event) -> None:
    """Log an event: through the outlet if there is one, otherwise now."""
    if wants(type(event)):
        soon(partial(write_now, event))


def soon(work: Callable[[], object]) -> None:
    """Run ``work`` now, or through the outlet if there is one."""
    if _outlets:
        _outlets[-1](work)
    else:
        work()


def write_now(event: Event) -> None:
    """Log an event now; takes as long as the log's handlers do."""
    key, level, sentence = SENTENCES[type(event)]
    facts = _facts(event)
    error = getattr(event, "error", None)
    logger.log(
        level,
        sentence,
        *filter(None, [facts]),  # an empty dict would count as an argument
        extra={"key": key, **facts},
        exc_info=cleaned(error) if error is not None and key in WITH_TRACEBACK else None,
    )


def in_words(event: Event) -> str:
    """The sentence that the log has for an event."""
    _key, _level, sentence = SENTENCES[type(event)]
    return sentence % _facts(event)


def _facts(event: Event) -> dict[str, object]:
    facts = {name: _plain(name, getattr(event, name)) for name in event.names}
    if "error_message" in facts:  # not every death has an exception: a process may be killed
        parts = (facts["error_type"], facts["error_message"])
        facts["wrong"] = ": ".join(str(part) for part in parts if part)
    return facts


def _plain(name: str, value: object) -> object:
    if isinstance(value, str):
        return in_sentence(value) if name in _FREE_TEXTS else one_line(value)
    if isinstance(value, int | float):
        return value
    return f"{one_line(type(value).__name__)}: {sentence_of(value)}"
