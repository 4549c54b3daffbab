"""One leased message from admission to outcome: the same in a worker and in its children.

``prepare`` admits it, ``execute`` runs its handler. The outcome is settled by the process that
talks to the store: the worker itself (see ``cycle``), or the parent, to which a child reports.
Only a job with ``atomic=True`` is acked here, because its ack is part of the handler's own
transaction.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from decimal import getcontext, setcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error

from django_jobs.backends.base import Settled, SharesTransactions, lacking
from django_jobs.clock import Stopwatch, to_microseconds
from django_jobs.db.transactions import is_schema_missing
from django_jobs.execution.attempt import Attempt, StopNow, is_running
from django_jobs.execution.connections import clean_connections
from django_jobs.execution.errors import error_text, fingerprint
from django_jobs.execution.return_value import encoded_value
from django_jobs.execution.shared_loop import run_among_others
from django_jobs.handlers.base import JobContext, JobTimeout
from django_jobs.outcome import (
    ErrorText,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    cancelled_as_asked,
)
from django_jobs.telemetry import tracing
from django_jobs.worker.admission import Admitted, Refused
from django_jobs.worker.events import emit_started
from django_jobs.worker.settle import Run, SettleTerms, Verdict, trace_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.execution.shared_loop import Cut
    from django_jobs.wire.envelope import Envelope
    from django_jobs.worker.admission import Gatekeeper, Policies
    from django_jobs.worker.settle import Settler


class Prepared(NamedTuple):
    """A lease with the decision whether its job may run."""

    lease: Lease
    decision: Admitted | Refused
    terms: SettleTerms | None
    watch: Stopwatch


class Execution(NamedTuple):
    """The outcome of a delivery, for the process that settles it.

    ``verdict``: set if the handler's transaction settled the job already. ``unanswered``: the
    verdict of a commit whose answer was lost; it is valid if the row of the job is gone.
    """

    run: Run
    outcome: Outcome
    verdict: Verdict | None = None
    unanswered: Verdict | None = None


TOO_LATE = Interrupted(
    "the rate limit of its queue counted a start that is over by now", begun=False
)


def _nothing(_timeout: float | None) -> None:
    """The handler is not watched from outside."""


def _never(_lease: Lease) -> bool:
    """No job is asked to stop."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Admits and runs the jobs of one backend.

    ``starting`` is called with the timeout just before a handler runs. ``is_asked``: whether the
    job of a lease is to stop. ``lent``: jobs run inside the caller's own work, and with the
    connections of that.
    """

    backend: Backend
    settings: JobsSettings
    gatekeeper: Gatekeeper
    settler: Settler
    policies: Policies
    worker: str
    is_asked: Callable[[Lease], bool] = _never
    starting: Callable[[float | None], object] = _nothing
    lent: bool = False

    def run(
        self, lease: Lease, lease_seconds: float, envelope: Envelope | None = None
    ) -> Execution:
        """Prepare and execute. ``envelope``: the message's, where it was opened before.

        Context variables that a handler sets end with its run, and so do its language, its time
        zone and the precision of its decimals.
        """
        return copy_context().run(self._run, lease, lease_seconds, envelope)

    def _run(self, lease: Lease, lease_seconds: float, envelope: Envelope | None) -> Execution:
        return self.execute(self.prepare(lease, lease_seconds, envelope))

    async def run_async(self, lease: Lease, lease_seconds: float, cut: Cut) -> Execution:
        """As ``run``, for a coroutine handler, on a loop that it shares with others."""
        prepared = self.prepare(lease, lease_seconds)
        decision = prepared.decision
        if not isinstance(decision, Admitted):
            return Execution(_run_of(prepared, self.worker), decision.outcome)
        attempt = self._attempt(prepared, decision)
        with tracing.of_run(attempt.context, decision.envelope) as ended:
            ran = await run_among_others(attempt, cut)
            outcome = ended(self._unless_asked(lease, ran))
        return Execution(_run_of(prepared, self.worker), outcome)

    def prepare(
        self, lease: Lease, lease_seconds: float, envelope: Envelope | None = None
    ) -> Prepared:
        """Decide whether a job may run. In a context of its own, as ``run`` makes one."""
        watch = Stopwatch()
        setcontext(getcontext().copy())  # otherwise all copies of a context share one object
        leased_at = lease.expires_at - to_microseconds(lease_seconds)
        decision = self.gatekeeper.admit(lease, leased_at, envelope)
        # At the end, because admitting a job may import its module, which may take a while.
        if lease.start_by is not None and lease.is_late and isinstance(decision, Admitted):
            decision = Refused(TOO_LATE, decision.envelope)
        return Prepared(lease, decision, SettleTerms.of(decision.envelope), watch)

    def execute(self, prepared: Prepared) -> Execution:
        """Run the handler of a job that may run."""
        lease, decision, *_ = prepared
        if not isinstance(decision, Admitted):
            return Execution(_run_of(prepared, self.worker), decision.outcome)
        attempt = self._attempt(prepared, decision)
        if decision.envelope.terms.atomic:
            return self._execute_atomically(prepared, decision, attempt)
        with (
            clean_connections(lent=self.lent),
            tracing.of_run(attempt.context, decision.envelope) as ended,
        ):
            outcome = ended(self._unless_asked(lease, attempt.run()))
        return Execution(_run_of(prepared, self.worker), outcome)

    def _execute_atomically(
        self, prepared: Prepared, admitted: Admitted, attempt: Attempt
    ) -> Execution:
        """The handler's writes and the ack commit together, or neither does."""
        lease = prepared.lease
        done: Execution | None = None
        outcome: Outcome
        try:
            with (
                clean_connections(lent=self.lent),
                self._joint_transaction(lease) as connection,
            ):
                # 0, unless inside a transaction of the caller.
                depth = len(connection.savepoint_ids)
                with tracing.of_run(attempt.context, admitted.envelope) as ended:
                    outcome = ended(self._unless_asked(lease, attempt.run()))
                _success(outcome, blocks_left=len(connection.savepoint_ids) - depth)
                run = _run_of(prepared, self.worker)
                verdict = _acked(self.settler.settle(run, outcome), outcome)
                done = Execution(run, outcome, verdict)
                if not depth:
                    _contain_hooks(connection, attempt)
            return done
        except (StopNow, JobTimeout):
            if done is None or is_running():  # of a run around this one
                raise
            return done  # of a hook, after the commit
        except _UndoneError as undone:
            return Execution(_run_of(prepared, self.worker), undone.outcome, undone.verdict)
        except (Error, OSError) as error:
            outcome = _undone_by(error, admitted.handler.key, settling=done is None)
            # If the answer to the commit was lost, it may have succeeded all the same.
            unanswered = done.verdict if done else None
            return Execution(_run_of(prepared, self.worker), outcome, None, unanswered)

    @contextmanager
    def _joint_transaction(self, lease: Lease) -> Iterator[Any]:
        if not isinstance(self.backend, SharesTransactions):
            raise lacking(self.backend, "share a transaction with a handler", "atomic=True")
        with self.backend.joint_transaction() as connection:
            if lease.is_late:  # it waited for a lock
                raise _UndoneError(TOO_LATE)
            yield connection

    def _unless_asked(self, lease: Lease, outcome: Outcome) -> Outcome:
        """The outcome; a job that was asked to stop is not run again."""
        return cancelled_as_asked(outcome) if self.is_asked(lease) else outcome

    def _attempt(self, prepared: Prepared, admitted: Admitted) -> Attempt:
        lease = prepared.lease
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
            trace_id=trace_id_of(lease, prepared.terms),
            fence=lease.fence,
            deadline=time.time() + seconds if seconds else None,
            timeout=seconds or None,
            ends_at=time.monotonic() + seconds if seconds else None,
            is_cancelled=lambda: self.is_asked(lease),
            terms=terms,
        )
        self.starting(seconds or None)
        emit_started(context, admitted.handler.key)
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
    """Keep an error in an on_commit function from looking like a failed commit.

    Nor does it prevent the other functions from running, as it would in Django.
    """
    connection.run_on_commit = [
        (savepoints, partial(attempt.after_commit, hook), *rest)
        for savepoints, hook, *rest in connection.run_on_commit
    ]


def _undone_by(error: Exception, key: str, *, settling: bool) -> Outcome:
    """The outcome after an error of the joint transaction, if the handler ended well."""
    if settling and is_schema_missing(error):
        return Interrupted("tables or columns of django_jobs are missing")
    return Failed(error_text(error), fingerprint=fingerprint(key, error))


_LEFT_OPEN = Failed(
    ErrorText(
        "TransactionManagementError", "the handler left an atomic() block open or closed ours"
    )
)


def _success(outcome: Outcome, *, blocks_left: int) -> None:
    """Raise unless the handler ended well and what it wrote is going to be committed."""
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


def _run_of(prepared: Prepared, worker: str) -> Run:
    lease, decision, terms, watch = prepared
    header, envelope = lease.message.header, decision.envelope
    counted = header.clamped(envelope.terms) if envelope is not None else header
    times = watch.started, watch.now()
    return Run(lease, terms, counted.attempts, counted.crashes, *times, worker)
