"""What parent and child send each other: leases and outcomes as plain tuples, and back."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.base import Lease
from django_jobs.execution.outcome import (
    Cancelled,
    Crashed,
    ErrorText,
    Failed,
    Interrupted,
    Rejected,
    Skipped,
    Snoozed,
    Succeeded,
)
from django_jobs.execution.retry import LONGEST_DELAY, Exponential, built_in
from django_jobs.execution.return_value import Encoded, encoded_value
from django_jobs.wire.envelope import Header, Message
from django_jobs.worker.cycle import report_of
from django_jobs.worker.settle import SettleTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.executor import Execution


def lease_to_tuple(lease: Lease) -> tuple[Any, ...]:
    """What a child needs of a lease."""
    job_id, queue, token, expires_at, message, suspect, _created_at, _handle, *more = lease
    body, signature, key_id, header, index, own_id = message
    # An index that leases share is written once for all of a frame, unless it is copied.
    plain = index if type(index) is dict else dict(index)
    said = (body, signature, key_id, plain, own_id)
    return (job_id, queue, token, expires_at, suspect, said, tuple(header), *more)


def lease_from_tuple(told: tuple[Any, ...]) -> Lease:
    """The lease again; when it was created and where it lies stays with the parent."""
    job_id, queue, token, expires_at, suspect, said, counts, *more = told
    body, signature, key_id, index, own_id = said
    message = Message(body, signature, key_id, Header(*counts), index, own_id)
    return Lease(job_id, queue, token, expires_at, message, suspect, None, None, *more)


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Cancelled, Crashed, Interrupted, Rejected, Skipped, Snoozed)
}


def outcome_to_tuple(outcome: Outcome) -> tuple[Any, ...]:
    """An outcome for the way to the parent; a return value is JSON text from here on."""
    match outcome:
        case Succeeded(value, output):
            encoded = encoded_value(value)
            return ("Succeeded", encoded.json, encoded.note, output)
        case Failed(error):
            return (
                "Failed",
                (error.type, error.message, error.traceback),
                outcome.retryable,
                outcome.delay,
                outcome.output,
                outcome.timed_out,
                outcome.fingerprint,
            )
        case _:
            kind = type(outcome)
            return (kind.__name__, *(getattr(outcome, name) for name in kind.__slots__))


class BadFrame(Exception):
    """A child sent what no child sends."""


_TEXTS = (str, str, str)
_NUMBERS = (int, float)
# What an outcome is as a tuple: the types that may stand in each place.
_SHAPES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "Failed": ((str,), (tuple,), (bool,), (*_NUMBERS, type(None)), (str,), (bool,), (str,)),
    "Snoozed": ((str,), _NUMBERS, (str,), (bool,)),
    "Interrupted": ((str,), (str,), (bool,), (*_NUMBERS, type(None)), (bool,)),
    "Cancelled": ((str,), (str,), (str,)),
    "Rejected": ((str,), (str,), (str,)),
    "Crashed": ((str,), (str,)),
    "Skipped": ((str,), (str,)),
}
_OUTCOMES = {kind: frozenset(product(*places)) for kind, places in _SHAPES.items()}
_WHOLE_OR_NONE, _TEXT_OR_NONE = (int, type(None)), (str, type(None))
_NUMBER_OR_NONE = (*_NUMBERS, type(None))
_RETRIES = (str, type(None), list, dict)
_DELAYS = {"Failed": 3, "Snoozed": 1, "Interrupted": 3}  # the place of what is bounded as well
_SKIPPED_LENGTH = 3
_COUNT_BITS = 31
MOMENT_BITS = 62


def check_rest(kind: str, frame: Sequence[Any]) -> None:
    """What is told of a job that needs no settling."""
    if kind == SETTLED:
        _, _, _, status, seconds = frame
        if not (type(status) is str and -LONGEST_DELAY < seconds < LONGEST_DELAY):
            raise BadFrame(f"a job settled as {status} after {seconds} seconds")
    elif kind != SKIPPED or len(frame) != _SKIPPED_LENGTH:
        raise BadFrame(f"a frame of the kind {kind}")


def _check(told: tuple[Any, ...]) -> None:
    """That an outcome is one as children tell them."""
    kind = told[0]
    if tuple(map(type, told)) not in _OUTCOMES[kind]:
        raise BadFrame(f"an outcome of another shape: {kind}")
    if kind == "Failed" and tuple(map(type, told[1])) != _TEXTS:
        raise BadFrame("an error that is no text")
    delay = told[_DELAYS[kind]] if kind in _DELAYS else None
    if delay is not None and not 0 <= delay <= LONGEST_DELAY:  # nor what is no number
        raise BadFrame(f"a delay of {delay} seconds")


def outcome_from_tuple(told: tuple[Any, ...]) -> Outcome:
    """The outcome again; a BadFrame, or any error at all, where that is none."""
    kind, *rest = told
    if kind == "Succeeded":
        value_json, note, output = rest
        if not type(value_json) is type(note) is type(output) is str:
            raise BadFrame("a result that is no text")
        return Succeeded(Encoded(value_json, note), output)
    _check(told)
    if kind == "Failed":
        error, *facts = rest
        return Failed(ErrorText(*error), *facts)
    made: Outcome = _KINDS[kind](*rest)
    return made


class Said(NamedTuple):
    """What a child says of an end, and may say again of the next: all but when it was."""

    outcome: Outcome
    terms: SettleTerms | None
    counts: tuple[int, int]


NOTHING_SAID = Said(Interrupted("its process said nothing of it"), None, (0, 0))


def said_of(
    outcome: tuple[Any, ...],
    terms: tuple[Any, ...] | None,
    counts: tuple[int, int],
    known: SettleTerms | None = None,
) -> Said:
    """What a child says of an end. ``known``: these very terms, when it said them before."""
    attempts, crashes = counts
    if (attempts | crashes) >> _COUNT_BITS:  # no number, below 0, or too large for a store
        raise BadFrame(f"counts of {counts}")
    return Said(outcome_from_tuple(outcome), known or terms_from_tuple(terms), counts)


def terms_from_tuple(plain: tuple[Any, ...] | None) -> SettleTerms | None:
    """The terms again; a BadFrame, or any error at all, where these are none."""
    if plain is None:
        return None
    terms = SettleTerms._make(plain)
    if not (
        type(terms.job) is str
        and type(terms.max_retries) is int
        and type(terms.max_crashes) in _WHOLE_OR_NONE
        and type(terms.retry) in _RETRIES
        and type(terms.result_ttl) in _NUMBER_OR_NONE
        and type(terms.trace_id) in _TEXT_OR_NONE
        and type(terms.atomic) is bool
    ):
        raise BadFrame("terms of another shape")
    if type(terms.retry) is list or type(terms.retry) is dict:
        (built_in(terms.retry) or Exponential()).delay(1)  # what settling it would raise
    return terms


# How a child says that it ran something, that it ended as what it said last, that it settled it
# itself, and that it did not begin it.
RAN, ALIKE, SETTLED, SKIPPED = "ran", "alike", "settled", "skipped"


def end_to_tuple(execution: Execution) -> tuple[Any, ...]:
    """How a delivery ended, for the parent: settled already, or what there is to settle."""
    run, outcome, verdict, _ = execution
    if verdict is not None:
        report = report_of(run, verdict)
        return (SETTLED, report.status, report.seconds)
    return (
        RAN,
        outcome_to_tuple(outcome),
        None if run.terms is None else tuple(run.terms),
        (run.attempts, run.crashes),
        (run.started_at, run.finished_at),
    )


class EndReporter:
    """Reports ends to the parent; of one that is as the last one was only when it was."""

    def __init__(self, send: Callable[[tuple[Any, ...]], None]) -> None:
        self._send = send
        self._last: tuple[Any, ...] = ()

    def report(self, index: int, number: int, end: tuple[Any, ...]) -> None:
        """Send what ``end_to_tuple`` made of the end of a number."""
        if end[0] != RAN:
            self._send((index, number, *end))
        elif end[1:4] == self._last:
            started, finished = end[4]
            self._send((index, number, ALIKE, started, finished - started))
        else:
            self._last = self._report_whole(index, number, end)

    def _report_whole(self, index: int, number: int, end: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            self._send((index, number, *end))
        except ValueError as error:
            end = _without_outcome(end, error)
            self._send((index, number, *end))
        return end[1:4]


def _without_outcome(end: tuple[Any, ...], error: ValueError) -> tuple[Any, ...]:
    """The same end where something in its outcome cannot be sent: the run has failed."""
    kind, outcome, *rest = end
    text = ErrorText("ValueError", f"its {outcome[0]} cannot be told to the worker: {error}")
    return (kind, outcome_to_tuple(Failed(text)), *rest)
