"""What stands in a child where settling and renewing stand in one process.

A child never settles, save for ``atomic=True``, where the ack is part of the handler's
own transaction. It keeps the outcome, and tells the parent.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Settled
from django_jobs.execution.outcome import ErrorText, Failed
from django_jobs.worker.pool.messages import outcome_to_tuple, terms_to_tuple
from django_jobs.worker.settle import Verdict

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from django_jobs.backends.base import Lease
    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.cycle import Report
    from django_jobs.worker.pool.marks import Marks
    from django_jobs.worker.settle import Run

_NOTHING: AbstractContextManager[None] = nullcontext()
_RECORDED = Verdict("recorded", Settled.SETTLED)


class Recorder:
    """Stands where settling stands in one process, and keeps what it is told."""

    def __init__(self) -> None:
        self.told: tuple[Run, Outcome] | None = None

    def settle(self, run: Run, outcome: Outcome, _seconds: float) -> Verdict:
        self.told = (run, outcome)
        return _RECORDED

    def taken(self) -> tuple[Run, Outcome] | None:
        """What it was told since it was last asked."""
        told, self.told = self.told, None
        return told

    def is_gone(self, _run: Run, _seconds: float) -> bool:
        """An atomic commit that was not answered: the parent looks."""
        return False


class ParentRenews:
    """In a child nothing has to be done for a lease to live; the marks tell what is to stop."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def is_asked(self, _lease: Lease) -> bool:
        return self._marks.is_asked

    def holding(self, _lease: Lease, _seconds: float) -> AbstractContextManager[None]:
        return _NOTHING


def told_end(recorder: Recorder, report: Report) -> tuple[Any, ...]:
    """How a delivery ended, for the parent: settled already, or what there is to settle."""
    recorded = recorder.taken()
    if recorded is None:
        return ("settled", report.status, report.seconds)
    run, outcome = recorded
    return (
        "ran",
        outcome_to_tuple(outcome),
        terms_to_tuple(run.envelope),
        (run.attempts, run.crashes),
        (run.started_at, run.finished_at),
    )


def unsayable(told: tuple[Any, ...], error: ValueError) -> tuple[Any, ...]:
    """The same end for the parent, where something in it cannot be sent: the run has failed."""
    kind, outcome, *rest = told
    text = ErrorText("ValueError", f"its {outcome[0]} cannot be told to the worker: {error}")
    return (kind, outcome_to_tuple(Failed(text)), *rest)
