"""Leases and outcomes as plain tuples, and back."""

from __future__ import annotations

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
from django_jobs.wire.envelope import Envelope, Header, Message, Terms
from django_jobs.wire.tracing import trace_of
from django_jobs.worker.returned import Encoded, encoded_value
from django_jobs.worker.settle import Run

if TYPE_CHECKING:
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


def outcome_from_tuple(told: tuple[Any, ...]) -> Outcome:
    kind, *rest = told
    if kind == "Succeeded":
        value_json, note, output = rest
        return Succeeded(Encoded(value_json, note), output)
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
    outcome: tuple[Any, ...], terms: tuple[Any, ...] | None, counts: tuple[int, int]
) -> Said:
    return Said(outcome_from_tuple(outcome), terms_from_tuple(terms), counts)


def run_of(
    lease: Lease, terms: Terms | None, counts: tuple[int, int], times: tuple[int, int], worker: str
) -> Run:
    """A delivery as settling sees it, from what the child told of it."""
    envelope = None if terms is None else Envelope(lease.id, None, 0, terms)
    return Run(lease, envelope, *counts, *times, worker)


def terms_from_tuple(told: tuple[Any, ...] | None) -> Terms | None:
    if told is None:
        return None
    job, queue, max_retries, max_crashes, retry, result_ttl, trace_id, atomic = told
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


# How a child says that it ran something, and that it ended as what it said last.
RAN, ALIKE = "ran", "alike"
