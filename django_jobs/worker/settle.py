"""Settles jobs by their outcomes.

Every outcome is matched, in ``ending`` or in ``_unended``; a type checker complains if one is
missing. Whether a job is run again or becomes a dead letter is decided in ``_failed`` for a failed
run, in ``_crashed`` for a crash, and in ``_give_back`` for a job that is to wait: where the backend
cannot, it is dead. A rejected job is always dead. Every job that is acked, alone or among others,
is acked by the one call of the backend in ``Settler.ack``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeGuard, assert_never

from django.db import Error, connections

from django_jobs.backends.base import (
    AttemptRecord,
    Charge,
    Evidence,
    Failure,
    KeepsBreakers,
    LimitsRates,
    ResultRecord,
    Settled,
)
from django_jobs.backends.crash_events import crash_delay
from django_jobs.backends.values import with_reason
from django_jobs.clock import SECOND
from django_jobs.execution.return_value import encoded_value
from django_jobs.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Rejected,
    Skipped,
    Snoozed,
    Succeeded,
)
from django_jobs.retry import Exponential, built_in
from django_jobs.texts import one_line
from django_jobs.wire.envelope import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Backend, Lease

    Observation = tuple[Lease, Evidence]
    from django_jobs.conf import JobsSettings
    from django_jobs.retry import RetrySpec
    from django_jobs.wire.envelope import Envelope

REFUSAL = "rejected-"
ENDINGS = (Succeeded, Skipped, Cancelled)
"""The outcomes of jobs that are acked; any number of them in one step."""
Unended = Failed | Snoozed | Rejected | Crashed | Interrupted
"""The outcomes of all other jobs."""


def goes_back(outcome: Outcome) -> TypeGuard[Interrupted]:
    """Whether the job only returns to its place; any number of them in one step."""
    return isinstance(outcome, Interrupted) and not outcome.suspect and outcome.delay is None


def count_probes(backend: Backend, observations: Sequence[Observation]) -> None:
    """Report probes to the breakers, before the settle frees the place of the probe."""
    if not isinstance(backend, KeepsBreakers):
        return
    if probes := [observation for observation in observations if observation[0].probe]:
        backend.count_evidence(probes)


def count_others(
    backend: Backend, observations: Sequence[Observation], answers: Sequence[Settled]
) -> None:
    """Report the others to the breakers, after their settle; an error here does not undo it."""
    if not isinstance(backend, KeepsBreakers):
        return
    settled = [
        observation
        for observation, answer in zip(observations, answers, strict=True)
        if answer is Settled.SETTLED and not observation[0].probe
    ]
    if settled:  # otherwise a query would hide that the settle broke its connection
        _unless_it_breaks(backend, lambda: backend.count_evidence(settled))


def return_starts(
    backend: Backend, given_back: Sequence[tuple[Run, Interrupted]], answers: Sequence[Settled]
) -> None:
    """Undo the counted starts of jobs that were given back without being started.

    If that fails, fewer jobs start than the rate limit allows.
    """
    leases = [
        run.lease
        for (run, outcome), answer in zip(given_back, answers, strict=True)
        if answer is Settled.SETTLED and run.lease.start_by is not None and not outcome.begun
    ]
    if leases and isinstance(backend, LimitsRates):
        _unless_it_breaks(backend, lambda: backend.return_starts(leases))


def _unless_it_breaks(backend: Backend, note: Callable[[], None]) -> None:
    """Write a note whose failure does not matter, unless it breaks an open transaction."""
    try:
        note()
    except (Error, OSError):
        database = backend.home
        if database is not None and connections[database].in_atomic_block:
            raise  # nothing is committed yet, and the transaction may be broken


def settle_and_count(
    backend: Backend, run: Run, outcome: Unended, settle: Callable[[], Verdict]
) -> Verdict:
    """Settle a job that is not acked, and report it to the breakers."""
    observations = [(run.lease, evidence_of(run, outcome))]
    count_probes(backend, observations)
    verdict = settle()
    count_others(backend, observations, [verdict.answer])
    return verdict


def evidence_of_ack(status: str) -> Evidence:
    """The evidence of an ack: only a success says that the handler works."""
    return Evidence.WORKED if status == "acked" else Evidence.BELIEVED


def evidence_of(run: Run, outcome: Unended) -> Evidence:
    """The evidence of other outcomes: whether the message was valid and the handler failed."""
    if isinstance(outcome, Rejected) and outcome.reason.startswith(REFUSAL):
        return Evidence.REFUSED
    if run.terms is None:
        return Evidence.NOTHING
    return Evidence.FAILED if isinstance(outcome, Failed | Crashed) else Evidence.BELIEVED


class SettleTerms(NamedTuple):
    """The terms of a job that settling needs; the rest stays in the signed body."""

    job: str
    max_retries: int = 0
    max_crashes: int | None = None
    retry: RetrySpec | None = None
    result_ttl: float | None = None
    trace_id: str | None = None
    atomic: bool = False

    @classmethod
    def of(cls, envelope: Envelope | None) -> SettleTerms | None:
        """The terms of an envelope; None for a message that was rejected."""
        if envelope is None:
            return None
        terms = envelope.terms
        return cls(
            terms.job,
            terms.max_retries,
            terms.max_crashes,
            terms.retry,
            terms.result_ttl,
            terms.trace_id or trace_of(envelope),
            bool(terms.atomic),
        )


def trace_id_of(lease: Lease, terms: SettleTerms | None) -> str:
    """The trace id of the options or the enqueue, or else one made of the job's id."""
    return (terms and terms.trace_id) or lease.id.replace("-", "")


class Run(NamedTuple):
    """A delivery that is to be settled. Without terms its message was rejected."""

    lease: Lease
    terms: SettleTerms | None
    attempts: int
    crashes: int
    started_at: int
    finished_at: int
    worker: str = ""

    @property
    def lasted(self) -> tuple[str, float, float]:
        """Its queue, the seconds it waited and the seconds it took.

        It waited from its due time on the store's clock until its start on ours.
        """
        due, started = self.lease.message.header.available_at, self.started_at
        waited = (started - due) / SECOND if 0 < due < started else 0.0
        return self.lease.queue, waited, (self.finished_at - started) / SECOND

    @property
    def waited(self) -> float:
        return self.lasted[1]

    @property
    def handler(self) -> str:
        """Its verified handler, or else the handler in the message's index."""
        if self.terms is not None:
            return self.terms.job
        return one_line(str(self.lease.message.index.get("handler", "")))

    @property
    def trace_id(self) -> str:
        return trace_id_of(self.lease, self.terms)


class Verdict(NamedTuple):
    """The result of a settle: the status for the report, the store's answer, and the reason."""

    status: str
    answer: Settled
    delay: float = 0.0
    reason: str = ""
    dead: bool = False

    @property
    def ends(self) -> bool:
        """Whether the job is over, rather than given back."""
        return self.dead or self.status in {"acked", "skipped-idempotent", "cancelled"}


class Ending(NamedTuple):
    """How a job ends by an ack, and the result that is kept."""

    status: str
    record: ResultRecord
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Settler:
    """Turns outcomes into the verbs of a backend."""

    backend: Backend
    settings: JobsSettings

    def settle(self, run: Run, outcome: Outcome, *, recorded: bool = True) -> Verdict:
        """Settle one delivery. ``recorded``: whether its result or attempt is kept as well."""
        if isinstance(outcome, ENDINGS):
            ending = self.ending(run, outcome)
            if not recorded:
                ending = ending._replace(record=ending.record._replace(ttl_seconds=0.0))
            (answer,) = self.ack([(run, ending)])
            return Verdict(ending.status, answer, reason=ending.reason)

        def settle() -> Verdict:
            return self._unended(run, outcome, recorded=recorded)

        return settle_and_count(self.backend, run, outcome, settle)

    def _unended(self, run: Run, outcome: Unended, *, recorded: bool) -> Verdict:
        match outcome:
            case Snoozed(delay, reason, put_off):
                charge = Charge.PUT_OFF if put_off else Charge.NOTHING
                return self._give_back(run, "snoozed", delay, reason, charge)
            case Interrupted(reason, suspect, delay):
                charge = Charge.SUSPICION if suspect else Charge.NOTHING
                delay = delay if self.backend.capabilities.delay else None
                verdict = self._give_back(run, "requeued", delay, reason, charge)
                return_starts(self.backend, [(run, outcome)], [verdict.answer])
                return verdict
            case Rejected(reason, detail):
                return self._reject(run, reason, detail)
            case Crashed(detail):
                return self._crashed(run, detail)
            case Failed():
                return self._failed(run, outcome, recorded=recorded)
            case _:
                assert_never(outcome)

    def _failed(self, run: Run, failed: Failed, *, recorded: bool) -> Verdict:
        """Retry or dead letter: for a failed run, the first ``if`` decides it, and nothing else."""
        max_retries = run.terms.max_retries if run.terms else 0
        attempt = _attempt(run, failed) if recorded else None
        if failed.retryable and run.attempts < max_retries:
            delay = self._delay(run, failed)
            answer = self.backend.nack(run.lease, delay, charge=Charge.ATTEMPT, attempt=attempt)
            return Verdict("requeued", answer, delay, failed.error.message)
        if not failed.retryable:
            reason = "not-retryable"
        elif failed.timed_out:
            reason = "timed-out"
        else:
            reason = "exhausted"
        failure = Failure(
            reason=reason,
            error_type=failed.error.type,
            error_message=failed.error.message,
            traceback=failed.error.traceback,
            output=failed.output,
            fingerprint=failed.fingerprint,
            charge=Charge.ATTEMPT,
            attempt=attempt,
        )
        return self._abandon(run, "dead-lettered", failure)

    def _delay(self, run: Run, failed: Failed) -> float:
        if failed.delay is not None:
            return failed.delay
        spec = run.terms.retry if run.terms else None
        policy = built_in(
            spec if spec is not None else self.settings.effective_retry(run.lease.queue)
        )
        # A custom policy runs with the attempt, and its delay comes with the outcome, unless the
        # process was killed. A job that hung until then is not run again at once.
        return (policy or Exponential()).delay(run.attempts + 1) or 0.0

    def _reject(self, run: Run, reason: str, detail: str) -> Verdict:
        status = "rejected" if reason.startswith(REFUSAL) else "dead-lettered"
        status = "crashed" if reason == "crashed" else status
        return self._abandon(run, status, Failure(reason=reason, error_message=detail))

    def _crashed(self, run: Run, detail: str) -> Verdict:
        allowed = (run.terms and run.terms.max_crashes) or self.settings.max_crashes
        if run.crashes + 1 < allowed:
            delay = crash_delay(run.crashes) if self.backend.capabilities.delay else None
            answer = self.backend.nack(run.lease, delay, charge=Charge.CRASH)
            return Verdict("crashed", answer, delay or 0.0, detail)
        failure = Failure(reason="crashed", error_message=detail, charge=Charge.CRASH)
        return self._abandon(run, "crashed", failure)

    def _abandon(self, run: Run, status: str, failure: Failure) -> Verdict:
        answer = self.backend.abandon(run.lease, failure)
        reason = ": ".join(part for part in (failure.reason, failure.error_message) if part)
        return Verdict(status, answer, reason=reason, dead=True)

    def _give_back(
        self,
        run: Run,
        status: str,
        delay: float | None,
        reason: str,
        charge: Charge = Charge.NOTHING,
    ) -> Verdict:
        if delay and not self.backend.capabilities.delay:
            detail = f"this backend cannot wait {delay:g} seconds for a later run: {reason}"
            return self._abandon(
                run, "dead-lettered", Failure(reason="cannot-wait", error_message=detail)
            )
        answer = self.backend.nack(run.lease, delay, charge=charge)
        return Verdict(status, answer, delay or 0.0, reason)

    def ending(self, run: Run, outcome: Succeeded | Skipped | Cancelled) -> Ending:
        """The ending of a job that needs no further run."""
        match outcome:
            case Succeeded(value, output):
                encoded = encoded_value(value)
                return Ending("acked", self._record(run, "succeeded", output, encoded.stored))
            case Skipped(reason):
                record = self._record(run, "skipped", reason)
                return Ending("skipped-idempotent", record, reason)
            case Cancelled(reason, output):
                record = self._record(run, "cancelled", with_reason(reason, output))
                return Ending("cancelled", record, reason)
            case _:
                assert_never(outcome)

    def ack(self, endings: Sequence[tuple[Run, Ending]]) -> list[Settled]:
        """Ack any number of jobs in one step."""
        kept = {}
        if self.backend.capabilities.results:
            kept = {
                run.lease.id: ending.record
                for run, ending in endings
                if ending.record.ttl_seconds > 0
            }
        observations = [(run.lease, evidence_of_ack(ending.status)) for run, ending in endings]
        count_probes(self.backend, observations)
        undone = [lease.id for lease, evidence in observations if evidence is not Evidence.WORKED]
        leases = [run.lease for run, _ in endings]
        answers = self.backend.ack(leases, kept or None, undone=undone)
        count_others(self.backend, observations, answers)
        return answers

    def _record(self, run: Run, status: str, output: str, value: str = "null") -> ResultRecord:
        ttl = run.terms.result_ttl if run.terms else None
        ttl = self.settings.result_ttl if ttl is None else ttl
        return ResultRecord(status, value, output, run.started_at, run.finished_at, run.worker, ttl)


def _attempt(run: Run, failed: Failed) -> AttemptRecord:
    return AttemptRecord(
        number=run.attempts + 1,
        outcome="timed-out" if failed.timed_out else "failed",
        started_at=run.started_at,
        finished_at=run.finished_at,
        error_type=failed.error.type,
        error_message=failed.error.message,
        traceback=failed.error.traceback,
        output=failed.output,
        worker=run.worker,
    )
