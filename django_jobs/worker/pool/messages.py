"""What parent and child send each other: leases and outcomes, packed as plain tuples."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from django_jobs.backends.base import Lease
from django_jobs.execution.return_value import Encoded, encoded_value
from django_jobs.outcome import (
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
from django_jobs.retry import LONGEST_DELAY, Exponential, built_in
from django_jobs.wire.envelope import Header, Message
from django_jobs.worker.cycle import report_of
from django_jobs.worker.settle import SettleTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.outcome import Outcome
    from django_jobs.worker.executor import Execution


def lease_to_tuple(lease: Lease) -> tuple[Any, ...]:
    """The parts of a lease that a child needs."""
    job_id, queue, token, expires_at, message, suspect, _created_at, _handle, *more = lease
    body, signature, key_id, header, index, own_id = message
    # Marshal writes an index that several leases share once per frame, unless it is copied.
    plain = index if type(index) is dict else dict(index)
    packed_message = (body, signature, key_id, plain, own_id)
    return (job_id, queue, token, expires_at, suspect, packed_message, tuple(header), *more)


def lease_from_tuple(fields: tuple[Any, ...]) -> Lease:
    """Unpack a lease; the creation time and the handle stay with the parent."""
    job_id, queue, token, expires_at, suspect, packed_message, counts, *more = fields
    body, signature, key_id, index, own_id = packed_message
    message = Message(body, signature, key_id, Header(*counts), index, own_id)
    return Lease(job_id, queue, token, expires_at, message, suspect, None, None, *more)


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Cancelled, Crashed, Interrupted, Rejected, Skipped, Snoozed)
}


def outcome_to_tuple(outcome: Outcome) -> tuple[Any, ...]:
    """Pack an outcome for the parent; a return value is JSON text from here on."""
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
    """A frame that is not one of the protocol."""


_TEXTS = (str, str, str)
_NUMBERS = (int, float)
# The types that each place of a packed outcome may have.
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
# The place of the delay, which is bounded as well.
_DELAYS = {"Failed": 3, "Snoozed": 1, "Interrupted": 3}
_SKIPPED_LENGTH = 3
_COUNT_BITS = 31
MOMENT_BITS = 62


def check_settled_or_skipped(kind: str, frame: Sequence[Any]) -> None:
    """Check a frame about a job that needs no settling; raises BadFrame."""
    if kind == SETTLED:
        _, _, _, status, seconds = frame
        if not (type(status) is str and -LONGEST_DELAY < seconds < LONGEST_DELAY):
            raise BadFrame(f"a job settled as {status} after {seconds} seconds")
    elif kind != SKIPPED or len(frame) != _SKIPPED_LENGTH:
        raise BadFrame(f"a frame of the kind {kind}")


def _check_outcome(fields: tuple[Any, ...]) -> None:
    """Check the types and the delay of a packed outcome; raises BadFrame."""
    kind = fields[0]
    if tuple(map(type, fields)) not in _OUTCOMES[kind]:
        raise BadFrame(f"an outcome of another shape: {kind}")
    if kind == "Failed" and tuple(map(type, fields[1])) != _TEXTS:
        raise BadFrame("an error that is no text")
    delay = fields[_DELAYS[kind]] if kind in _DELAYS else None
    if delay is not None and not 0 <= delay <= LONGEST_DELAY:  # also refuses NaN
        raise BadFrame(f"a delay of {delay} seconds")


def outcome_from_tuple(fields: tuple[Any, ...]) -> Outcome:
    """Unpack an outcome; raises BadFrame, or any other error, when it is malformed."""
    kind, *rest = fields
    if kind == "Succeeded":
        value_json, note, output = rest
        if not type(value_json) is type(note) is type(output) is str:
            raise BadFrame("a result that is no text")
        return Succeeded(Encoded(value_json, note), output)
    _check_outcome(fields)
    if kind == "Failed":
        error, *details = rest
        return Failed(ErrorText(*error), *details)
    outcome: Outcome = _KINDS[kind](*rest)
    return outcome


class RunReport(NamedTuple):
    """What a child reports of a run, except its times; the same report may fit the next run."""

    outcome: Outcome
    terms: SettleTerms | None
    counts: tuple[int, int]


NO_REPORT = RunReport(Interrupted("its process did not report it"), None, (0, 0))


def read_report(
    outcome: tuple[Any, ...],
    terms: tuple[Any, ...] | None,
    counts: tuple[int, int],
    same_terms: SettleTerms | None = None,
) -> RunReport:
    """Check and unpack the report of a run. ``same_terms``: its terms, if they are as before."""
    attempts, crashes = counts
    if (attempts | crashes) >> _COUNT_BITS:  # negative, or too large for a store
        raise BadFrame(f"counts of {counts}")
    return RunReport(outcome_from_tuple(outcome), same_terms or terms_from_tuple(terms), counts)


def terms_from_tuple(plain: tuple[Any, ...] | None) -> SettleTerms | None:
    """Unpack terms; raises BadFrame, or any other error, when they are malformed."""
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
        (built_in(terms.retry) or Exponential()).delay(1)  # raises here what settling would raise
    return terms


# The kinds of frames from a child: it ran a job; the run ended like the one reported last; it
# settled the job itself; it did not begin the job.
RAN, ALIKE, SETTLED, SKIPPED = "ran", "alike", "settled", "skipped"


def end_to_tuple(execution: Execution) -> tuple[Any, ...]:
    """Pack the end of a delivery: settled already, or what the parent has to settle."""
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
    """Reports outcomes to the parent; repeats are sent as a short "same as last" frame."""

    def __init__(self, send: Callable[[tuple[Any, ...]], None]) -> None:
        self._send = send
        self._last: tuple[Any, ...] = ()

    def report(self, index: int, number: int, end: tuple[Any, ...]) -> None:
        """Send what ``end_to_tuple`` returned for the job with this number."""
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
    """Replace an outcome that cannot be sent: the run counts as failed."""
    kind, outcome, *rest = end
    text = ErrorText("ValueError", f"its {outcome[0]} cannot be sent to the worker: {error}")
    return (kind, outcome_to_tuple(Failed(text)), *rest)
