"""What stands in a child where settling and renewing stand in one process.

A child never settles, save for ``atomic=True``, where the ack is part of the handler's
own transaction. It tells the parent how each run ended.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Settled
from django_jobs.execution.outcome import ErrorText, Failed
from django_jobs.worker.cycle import report_of
from django_jobs.worker.pool.messages import ALIKE, RAN, SETTLED, outcome_to_tuple, terms_to_tuple
from django_jobs.worker.settle import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from django_jobs.backends.base import Lease
    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.cycle import Ended
    from django_jobs.worker.pool.shared_memory import Marks
    from django_jobs.worker.settle import Run

_NOTHING: AbstractContextManager[None] = nullcontext()
_LEFT_TO_THE_PARENT = Verdict("recorded", Settled.SETTLED)


class ParentSettles:
    """Stands where settling stands in one process."""

    def settle(self, _run: Run, _outcome: Outcome, _seconds: float) -> Verdict:
        return _LEFT_TO_THE_PARENT

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


def told_end(ended: Ended) -> tuple[Any, ...]:
    """How a delivery ended, for the parent: settled already, or what there is to settle."""
    run, verdict, outcome = ended
    if verdict is not _LEFT_TO_THE_PARENT:
        report = report_of(run, verdict)
        return (SETTLED, report.status, report.seconds)
    return (
        RAN,
        outcome_to_tuple(outcome),
        terms_to_tuple(run.envelope),
        (run.attempts, run.crashes),
        (run.started_at, run.finished_at),
    )


class Telling:
    """Tells the parent of ends; of one that is as the last one was only when it was."""

    def __init__(self, send: Callable[[tuple[Any, ...]], None]) -> None:
        self._send = send
        self._last: tuple[Any, ...] = ()

    def end(self, index: int, number: int, told: tuple[Any, ...]) -> None:
        """Tell what ``told_end`` made of the end of a number."""
        if told[0] != RAN:
            self._send((index, number, *told))
        elif told[1:4] == self._last:
            started, finished = told[4]
            self._send((index, number, ALIKE, started, finished - started))
        else:
            self._last = self._whole(index, number, told)

    def _whole(self, index: int, number: int, told: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            self._send((index, number, *told))
        except ValueError as error:
            told = _unsayable(told, error)
            self._send((index, number, *told))
        return told[1:4]


def _unsayable(told: tuple[Any, ...], error: ValueError) -> tuple[Any, ...]:
    """The same end for the parent, where something in it cannot be sent: the run has failed."""
    kind, outcome, *rest = told
    text = ErrorText("ValueError", f"its {outcome[0]} cannot be told to the worker: {error}")
    return (kind, outcome_to_tuple(Failed(text)), *rest)
