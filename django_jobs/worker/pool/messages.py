"""Leases and outcomes as plain tuples, and back."""

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
from django_jobs.wire.envelope import (
    Envelope,
    Header,
    Message,
    Terms,
    trace_of,
)
from django_jobs.worker.settle import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.execution.outcome import Outcome


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
_WHOLE_OR_NONE, _TEXT_OR_NONE, _FLAG_OR_NONE = ((kind, type(None)) for kind in (int, str, bool))
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


def terms_to_tuple(envelope: Envelope | None) -> tuple[Any, ...] | None:
    """What settling has to know of the terms; the rest stays with the signed body."""
    if envelope is None:
        return None
    terms = envelope.terms
    return (
        terms.job,
        terms.queue,
        terms.max_retries,
        terms.max_crashes,
        terms.retry,
        terms.result_ttl,
        terms.trace_id or trace_of(envelope),
        terms.atomic,
    )


class Said(NamedTuple):
    """What a child says of an end, and may say again of the next: all but when it was."""

    outcome: Outcome
    terms: Terms | None
    counts: tuple[int, int]


NOTHING_SAID = Said(Interrupted("its process said nothing of it"), None, (0, 0))


def said_of(
    outcome: tuple[Any, ...],
    terms: tuple[Any, ...] | None,
    counts: tuple[int, int],
    known: Terms | None = None,
) -> Said:
    """What a child says of an end. ``known``: these very terms, when it said them before."""
    attempts, crashes = counts
    if (attempts | crashes) >> _COUNT_BITS:  # no number, below 0, or too large for a store
        raise BadFrame(f"counts of {counts}")
    return Said(outcome_from_tuple(outcome), known or terms_from_tuple(terms), counts)


def run_of(
    lease: Lease, terms: Terms | None, counts: tuple[int, int], times: tuple[int, int], worker: str
) -> Run:
    """A delivery as settling sees it, from what the child told of it."""
    envelope = None if terms is None else Envelope(lease.id, None, 0, terms)
    return Run(lease, envelope, *counts, *times, worker)


def terms_from_tuple(told: tuple[Any, ...] | None) -> Terms | None:
    """The terms again; a BadFrame, or any error at all, where these are none."""
    if told is None:
        return None
    job, queue, max_retries, max_crashes, retry, result_ttl, trace_id, atomic = told
    if not (
        type(job) is type(queue) is str
        and type(max_retries) is int
        and type(max_crashes) in _WHOLE_OR_NONE
        and type(retry) in _RETRIES
        and type(result_ttl) in _NUMBER_OR_NONE
        and type(trace_id) in _TEXT_OR_NONE
        and type(atomic) in _FLAG_OR_NONE
    ):
        raise BadFrame("terms of another shape")
    if type(retry) is list or type(retry) is dict:
        (built_in(retry) or Exponential()).delay(1)  # what it would raise when it is settled
    return Terms(
        job=job,
        queue=queue,
        backend="",
        site="",
        max_retries=max_retries,
        max_crashes=max_crashes,
        retry=retry,
        result_ttl=result_ttl,
        trace_id=trace_id,
        atomic=atomic,
    )


# How a child says that it ran something, that it ended as what it said last, that it settled it
# itself, and that it did not begin it.
RAN, ALIKE, SETTLED, SKIPPED = "ran", "alike", "settled", "skipped"
