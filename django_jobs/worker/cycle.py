"""One message from lease to settle: the whole life of a delivery, readable at one go."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from decimal import getcontext, setcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from django.db import Error

from django_jobs.backends.base import Settled, SharesTransactions, lacking
from django_jobs.clock import SECOND, Stopwatch, to_microseconds
from django_jobs.db.transactions import is_schema_missing
from django_jobs.execution.attempt import Attempt, StopNow, is_running
from django_jobs.execution.connections import clean_connections
from django_jobs.execution.errors import error_text, fingerprint
from django_jobs.execution.outcome import (
    ErrorText,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    called_off,
)
from django_jobs.execution.return_value import encoded_value
from django_jobs.execution.shared_loop import run_among_others
from django_jobs.execution.timeout import JobTimeout
from django_jobs.handlers.base import JobContext
from django_jobs.telemetry import events, tracing
from django_jobs.texts import one_line
from django_jobs.worker.admission import Admitted, Refused
from django_jobs.worker.events import (
    events_of,
    tell_claimed,
    tell_started,
    trace_id_of,
)
from django_jobs.worker.settle import Run, Verdict
from django_jobs.worker.store import spares_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.execution.shared_loop import Cut
    from django_jobs.wire.envelope import Envelope
    from django_jobs.worker.admission import Gatekeeper, Policies
    from django_jobs.worker.settle import Settler


class Report(NamedTuple):
    """What one call of ``process_once()`` did."""

    status: str
    job_id: str = ""
    queue: str = ""
    handler: str = ""
    attempt: int = 0
    delay: float = 0.0
    reason: str = ""
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return self.status not in _NO_JOB


class Ended(NamedTuple):
    """A delivery that came to its end, and what the store or the parent said to it."""

    run: Run
    verdict: Verdict
    outcome: Outcome


TOO_LATE = Interrupted(
    "the rate limit of its queue counted a start that is over by now", begun=False
)
MOST_LATE_CLAIMS = 8  # each may be answered twice as late as the one before
EMPTY = Report(status="empty")
PASSED_OVER = Report(status="circuit-open")
_NO_JOB = {"empty", "error", "paused", "rate-limited", "circuit-open"}


def _nothing(_timeout: float | None) -> None:
    """Nobody watches the handler from outside."""


class Settles(Protocol):
    """What a delivery is settled with: the store itself, or who speaks to it."""

    def settle(self, run: Run, outcome: Outcome, seconds: float) -> Verdict: ...

    def is_gone(self, run: Run, seconds: float) -> bool: ...


class Renews(Protocol):
    """What keeps a lease alive while a handler runs, and hears when it is to stop."""

    def holding(self, lease: Lease, lease_seconds: float) -> AbstractContextManager[None]: ...

    def is_asked(self, lease: Lease) -> bool:
        """Whether the job is to stop, as far as is known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """Fetch, admit, run, settle; for one backend.

    ``starting`` is told the timeout just before a handler runs. ``lent``: jobs run inside the
    caller's own work, and with the connections of that.
    """

    backend: Backend
    settings: JobsSettings
    gatekeeper: Gatekeeper
    settler: Settler
    asker: Settles
    policies: Policies
    renewer: Renews
    worker: str
    starting: Callable[[float | None], object] = _nothing
    lent: bool = False

    def once(self, queues: Sequence[str], *, patiently: bool = True) -> Report:
        """Process one message of the first queue that has any.

        Where many are to be passed over first, as those of a broken handler: not ``patiently``
        only some are, and the caller comes again. A claim that was answered too late for a start
        is tried again, for it may take longer each time: what does so in each process that lives
        for one message would never run it.
        """
        report = self._once(queues, patiently=patiently)
        for _ in range(MOST_LATE_CLAIMS):
            if (report.status, report.reason) != ("requeued", TOO_LATE.reason):
                break
            report = self._once(queues, patiently=patiently)
        return report

    def _once(self, queues: Sequence[str], *, patiently: bool) -> Report:
        failed: Exception | None = None
        for queue in queues:
            lease_seconds = self.settings.effective_lease(queue)
            try:
                asked_at, leases = self._fetched(queue, lease_seconds, patiently=patiently)
            except Exception as error:
                if not spares_others(error):
                    raise
                failed = failed or error
                continue
            if leases is None:
                return PASSED_OVER
            for lease in leases:
                if time.monotonic() - asked_at > lease_seconds / 2:
                    self.backend.nack_all([lease])  # too little of it is left to run a job
                    return EMPTY
                tell_claimed([lease])
                return self.deliver(lease, lease_seconds)
        if failed is not None:  # or the queues would seem empty
            raise failed
        return EMPTY

    def _fetched(
        self, queue: str, lease_seconds: float, *, patiently: bool
    ) -> tuple[float, list[Lease] | None]:
        """When it was asked, and what came; None where there is more to pass over."""
        fetch = partial(self.backend.fetch, [queue], 1, lease_seconds)
        asked_at, leases = time.monotonic(), fetch()
        while not leases and self.backend.fetch_ended_early:  # there is none to renew meanwhile
            if not patiently:
                return asked_at, None
            asked_at, leases = time.monotonic(), fetch()
        return asked_at, leases

    def deliver(self, lease: Lease, lease_seconds: float) -> Report:
        """Take one leased message to its end, and tell of it."""
        run, verdict, outcome = self.ended(lease, lease_seconds)
        report = report_of(run, verdict)
        for event in events_of(run, verdict, report, outcome):
            events.emit(event)
        return report

    def ended(self, lease: Lease, lease_seconds: float, envelope: Envelope | None = None) -> Ended:
        """Take one leased message to its end; how it ended is for the caller to tell.

        ``envelope``: the message's, where it has been opened before. Context variables that
        a handler sets end with its run, and so do its language, its time zone and the precision
        of its decimals.
        """
        return copy_context().run(self._ended, lease, lease_seconds, envelope)

    def _ended(self, lease: Lease, lease_seconds: float, envelope: Envelope | None) -> Ended:
        watch = Stopwatch()
        setcontext(getcontext().copy())  # else all copies of a context share one object
        decision = self._decision(lease, lease_seconds, envelope)
        if isinstance(decision, Admitted):
            with self.renewer.holding(lease, lease_seconds):
                return self._run(lease, decision, watch, lease_seconds)
        run = _run_of(lease, decision.envelope, watch, self.worker)
        return self._settled(run, decision.outcome, lease_seconds)

    async def ended_async(self, lease: Lease, lease_seconds: float, cut: Cut) -> Ended:
        """As ``ended``, for a coroutine handler, on a loop that it shares with others."""
        watch = Stopwatch()
        setcontext(getcontext().copy())  # as above
        decision = self._decision(lease, lease_seconds)
        if isinstance(decision, Admitted):
            attempt = self._attempt(lease, decision)
            with tracing.of_run(attempt.context, decision.envelope) as ended:
                ran = await run_among_others(attempt, cut)
                outcome = ended(self._unless_asked(lease, ran))
        else:
            outcome = decision.outcome
        run = _run_of(lease, decision.envelope, watch, self.worker)
        return self._settled(run, outcome, lease_seconds)

    def _decision(
        self, lease: Lease, lease_seconds: float, envelope: Envelope | None = None
    ) -> Admitted | Refused:
        leased_at = lease.expires_at - to_microseconds(lease_seconds)
        decision = self.gatekeeper.admit(lease, leased_at, envelope)
        # Last of all: to admit a job may import its module, and that may take a while.
        if lease.start_by is not None and lease.is_late and isinstance(decision, Admitted):
            return Refused(TOO_LATE, decision.envelope)
        return decision

    def _settled(self, run: Run, outcome: Outcome, lease_seconds: float) -> Ended:
        return Ended(run, self.asker.settle(run, outcome, lease_seconds), outcome)

    def _run(
        self, lease: Lease, admitted: Admitted, watch: Stopwatch, lease_seconds: float
    ) -> Ended:
        attempt = self._attempt(lease, admitted)
        if admitted.envelope.terms.atomic:
            return self._run_atomically(lease, admitted, attempt, watch, lease_seconds)
        with (
            clean_connections(lent=self.lent),
            tracing.of_run(attempt.context, admitted.envelope) as ended,
        ):
            outcome = ended(self._unless_asked(lease, attempt.run()))
        run = _run_of(lease, admitted.envelope, watch, self.worker)
        return self._settled(run, outcome, lease_seconds)

    def _run_atomically(
        self,
        lease: Lease,
        admitted: Admitted,
        attempt: Attempt,
        watch: Stopwatch,
        lease_seconds: float,
    ) -> Ended:
        """The handler's writes and the ack commit together, or neither does."""
        done: Ended | None = None
        outcome: Outcome
        try:
            with (
                clean_connections(lent=self.lent),
                self._joint_transaction(lease) as connection,
            ):
                depth = len(connection.savepoint_ids)  # 0, unless it is part of the caller's
                with tracing.of_run(attempt.context, admitted.envelope) as ended:
                    outcome = ended(self._unless_asked(lease, attempt.run()))
                _success(outcome, blocks_left=len(connection.savepoint_ids) - depth)
                run = _run_of(lease, admitted.envelope, watch, self.worker)
                done = Ended(run, _acked(self.settler.settle(run, outcome), outcome), outcome)
                if not depth:
                    _contain_hooks(connection, attempt)
            return done
        except (StopNow, JobTimeout):
            if done is None or is_running():  # of a run around this one
                raise
            return done  # of a hook, after the commit
        except _UndoneError as undone:
            outcome, verdict = undone.outcome, undone.verdict
            run = _run_of(lease, admitted.envelope, watch, self.worker)
        except (Error, OSError) as error:
            run = _run_of(lease, admitted.envelope, watch, self.worker)
            # When the commit was not answered it may have come through all the same.
            if done is not None and self.asker.is_gone(run, lease_seconds):
                return done
            outcome, verdict = _undone_by(error, admitted.handler.key, settling=done is None), None
        if verdict is None:
            return self._settled(run, outcome, lease_seconds)
        return Ended(run, verdict, outcome)

    @contextmanager
    def _joint_transaction(self, lease: Lease) -> Iterator[Any]:
        if not isinstance(self.backend, SharesTransactions):
            raise lacking(self.backend, "share a transaction with a handler", "atomic=True")
        with self.backend.joint_transaction() as connection:
            if lease.is_late:  # it waited for a lock
                raise _UndoneError(TOO_LATE)
            yield connection

    def _unless_asked(self, lease: Lease, outcome: Outcome) -> Outcome:
        """What was asked to stop is not run again."""
        return called_off(outcome) if self.renewer.is_asked(lease) else outcome

    def _attempt(self, lease: Lease, admitted: Admitted) -> Attempt:
        terms = admitted.envelope.terms
        timeout = terms.timeout
        seconds = self.settings.effective_timeout(lease.queue) if timeout is None else timeout
        context = JobContext(
            id=lease.id,
            payload=admitted.envelope.payload,
            name=terms.name or terms.job,
            queue=lease.queue,
            attempt=admitted.header.attempts + 1,
            max_retries=terms.max_retries,
            meta=terms.meta or {},
            trace_id=trace_id_of(lease, admitted.envelope),
            fence=lease.fence,
            deadline=time.time() + seconds if seconds else None,
            timeout=seconds or None,
            ends_at=time.monotonic() + seconds if seconds else None,
            is_cancelled=lambda: self.renewer.is_asked(lease),
            terms=terms,
        )
        self.starting(seconds or None)
        tell_started(context, admitted.handler.key)
        return Attempt(
            handler=admitted.handler,
            context=context,
            timeout=seconds or None,
            own_policy=self.policies.own(terms.retry, lease.queue),
            keep=encoded_value,
        )


class _UndoneError(Exception):
    """Rolls the joint transaction back on its way out."""

    def __init__(self, outcome: Outcome, verdict: Verdict | None = None) -> None:
        super().__init__()
        self.outcome = outcome
        self.verdict = verdict


def _contain_hooks(connection: Any, attempt: Attempt) -> None:
    """Let none of the functions that run after the commit look like a commit that failed.

    Nor keep the others from running, as it would in Django.
    """
    connection.run_on_commit = [
        (savepoints, partial(attempt.after_commit, hook), *rest)
        for savepoints, hook, *rest in connection.run_on_commit
    ]


def _undone_by(error: Exception, key: str, *, settling: bool) -> Outcome:
    """What an error of the joint transaction means for its job, whose handler ended well."""
    if settling and is_schema_missing(error):
        return Interrupted("tables or columns of django_jobs are missing")
    return Failed(error_text(error), fingerprint=fingerprint(key, error))


_LEFT_OPEN = Failed(
    ErrorText(
        "TransactionManagementError", "the handler left an atomic() block open or closed ours"
    )
)


def _success(outcome: Outcome, *, blocks_left: int) -> None:
    """Raise unless the handler ended well, and what it wrote is going to be committed."""
    if blocks_left and isinstance(outcome, Succeeded):
        raise _UndoneError(_LEFT_OPEN)
    if not isinstance(outcome, Succeeded):
        raise _UndoneError(outcome)


def _acked(verdict: Verdict, outcome: Outcome) -> Verdict:
    if verdict.answer is Settled.UNKNOWN:
        raise ConnectionError("the connection broke before the transaction was committed")
    if verdict.answer is Settled.LOST:
        raise _UndoneError(outcome, verdict)
    return verdict


def _run_of(lease: Lease, envelope: Any, watch: Stopwatch, worker: str) -> Run:
    header = lease.message.header
    counted = header.clamped(envelope.terms) if envelope is not None else header
    times = watch.started, watch.now()
    return Run(lease, envelope, counted.attempts, counted.crashes, *times, worker)


def report_of(run: Run, verdict: Verdict) -> Report:
    """What became of a delivery."""
    status = verdict.status
    if verdict.answer is not Settled.SETTLED:
        status = "lease-lost" if verdict.answer is Settled.LOST else "error"
    return Report(
        status=status,
        job_id=run.lease.id,
        queue=run.lease.queue,
        handler=_handler_of(run),
        attempt=run.attempts + 1,
        delay=verdict.delay,
        reason=verdict.reason,
        seconds=(run.finished_at - run.started_at) / SECOND,
    )


def _handler_of(run: Run) -> str:
    if run.envelope is not None:
        return run.envelope.terms.job
    return one_line(str(run.lease.message.index.get("handler", "")))
