"""Leases and outcomes as plain tuples, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

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
    if told == _PLAIN:
        return _NOTHING_TO_KEEP
    kind, *rest = told
    if kind == "Succeeded":
        value_json, note, output = rest
        return Succeeded(Encoded(value_json, note), output)
    if kind == "Failed":
        error, *facts = rest
        return Failed(ErrorText(*error), *facts)
    made: Outcome = _KINDS[kind](*rest)
    return made


# As most jobs end.
_NOTHING_TO_KEEP = Succeeded(encoded_value(None))
_PLAIN = outcome_to_tuple(_NOTHING_TO_KEEP)


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


def run_of(
    lease: Lease,
    told: tuple[Any, ...] | None,
    counts: tuple[int, int],
    times: tuple[int, int],
    worker: str,
) -> Run:
    """A delivery as settling sees it, from what the child told of it."""
    envelope = None
    if told is not None:
        try:
            terms = _shared_terms(told)
        except TypeError:  # a retry policy that is a list or a dict
            terms = _terms(told)
        envelope = Envelope(lease.id, None, 0, terms)
    return Run(lease, envelope, *counts, *times, worker)


def _terms(told: tuple[Any, ...]) -> Terms:
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


_shared_terms = lru_cache(maxsize=256)(_terms)
