"""What the breakers learn of deliveries, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from django.db import Error, connections

from django_jobs.backends.base import Evidence, Settled
from django_jobs.execution.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Interrupted,
    Rejected,
    Skipped,
    Snoozed,
    Succeeded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.settle import Run, Verdict

    Told = tuple[Lease, Evidence]

REFUSAL = "rejected-"
ENDINGS = (Succeeded, Skipped, Cancelled)
"""The outcomes of jobs that are acked, any number of them in one step."""
Unended = Failed | Snoozed | Rejected | Crashed | Interrupted
"""The outcomes of the others."""


def goes_back(outcome: Outcome) -> TypeGuard[Interrupted]:
    """Whether the job returns to its place and nothing more: any number of them in one step."""
    return isinstance(outcome, Interrupted) and not outcome.suspect and outcome.delay is None


def learn_of_probes(backend: Backend, told: Sequence[Told]) -> None:
    """Before the settle, which frees the probe's place: another one would be let pass."""
    if probes := [one for one in told if one[0].probe]:
        backend.learn(probes)


def learn_of_others(backend: Backend, told: Sequence[Told], answers: Sequence[Settled]) -> None:
    """Of those whose settle counted, and goes on counting should the breakers not be told."""
    settled = [
        one
        for one, answer in zip(told, answers, strict=True)
        if answer is Settled.SETTLED and not one[0].probe
    ]
    if settled:  # to ask the store now would hide that the settle broke its connection
        _unless_it_breaks(backend, lambda: backend.learn(settled))


def return_starts(
    backend: Backend, given_back: Sequence[tuple[Run, Interrupted]], answers: Sequence[Settled]
) -> None:
    """Let a rate limit count no start for what was given back and not begun.

    Where that cannot be done, fewer jobs start than may.
    """
    leases = [
        run.lease
        for (run, outcome), answer in zip(given_back, answers, strict=True)
        if answer is Settled.SETTLED and run.lease.start_by is not None and not outcome.begun
    ]
    if leases:
        _unless_it_breaks(backend, lambda: backend.return_starts(leases))


def _unless_it_breaks(backend: Backend, note: Callable[[], None]) -> None:
    """Note what the settle that counted need not be undone for."""
    try:
        note()
    except (Error, OSError):
        database = getattr(backend, "database", None)
        if database is not None and connections[database].in_atomic_block:
            raise  # nothing counts yet, and the transaction may be broken


def learned(backend: Backend, run: Run, outcome: Unended, settle: Callable[[], Verdict]) -> Verdict:
    """Settle a job that is not acked, and let the breakers learn of it."""
    told = [(run.lease, of(run, outcome))]
    learn_of_probes(backend, told)
    verdict = settle()
    learn_of_others(backend, told, [verdict.answer])
    return verdict


def of_ack(status: str) -> Evidence:
    """Skipped and cancelled jobs were believed, but their handlers did not do their work."""
    return Evidence.WORKED if status == "acked" else Evidence.BELIEVED


def of(run: Run, outcome: Unended) -> Evidence:
    """Whether the message was believed, and whether its handler failed."""
    if isinstance(outcome, Rejected) and outcome.reason.startswith(REFUSAL):
        return Evidence.REFUSED
    if run.envelope is None:
        return Evidence.NOTHING
    return Evidence.FAILED if isinstance(outcome, Failed | Crashed) else Evidence.BELIEVED
