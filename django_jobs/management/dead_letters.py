"""Dead letters as a list, as a page and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.clock import SECOND, from_datetime
from django_jobs.exceptions import ConfigurationError, InvalidJob, Rejection
from django_jobs.management.output import aware, error_in_short, escaped, from_now, iso
from django_jobs.models import JobAttempt
from django_jobs.operations.replay import checked
from django_jobs.redaction import field_of, laid_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.models import FailedJob

HEADERS = ("number", "job", "queue", "handler", "reason", "attempts", "died", "error")
_SHORT = (
    "backend",
    "queue",
    "handler",
    "name",
    "reason",
    "attempts",
    "crashes",
    "error_type",
    "error_message",
)


def row(failed: FailedJob, now: int) -> tuple[object, ...]:
    """The cells under HEADERS."""
    died = from_now((from_datetime(aware(failed.failed_at)) - now) / SECOND)
    error = error_in_short(failed.error_type, failed.error_message)
    identity = (failed.pk, failed.job_id, failed.queue, failed.handler, failed.reason)
    return (*identity, failed.attempts, died, error)


def document(failed: FailedJob) -> dict[str, Any]:
    """A dead letter for JSON, without what only its own page shows."""
    return {
        "number": failed.pk,
        "id": str(failed.job_id),
        **{name: getattr(failed, name) for name in _SHORT},
        "enqueued_at": iso(failed.enqueued_at),
        "failed_at": iso(failed.failed_at),
        "replay_of": _text(failed.replay_of),
        "resolution": _resolution(failed),
    }


def full_document(failed: FailedJob, using: str) -> dict[str, Any]:
    """All of a dead letter for JSON, secrets put out of sight."""
    obstacle = why_not_replayable(failed)
    return {
        **document(failed),
        "replayable": not obstacle and not failed.resolution,
        "obstacle": obstacle,
        "payload": field_of(failed.body, "payload"),
        "meta": field_of(failed.body, "meta"),
        "traceback": failed.traceback,
        "output": failed.output,
        "runs": [
            {
                "number": attempt.number,
                "outcome": attempt.outcome,
                "started_at": iso(attempt.started_at),
                "finished_at": iso(attempt.finished_at),
                "error_type": attempt.error_type,
                "error_message": attempt.error_message,
                "worker": attempt.worker,
            }
            for attempt in _attempts(failed, using)
        ],
    }


def page(failed: FailedJob, using: str) -> Iterator[str]:
    """All of a dead letter for people, line by line, escaped."""
    facts = {
        "dead letter": failed.pk,
        "job": failed.job_id,
        "handler": failed.handler,
        "name": failed.name,
        "queue": f"{failed.queue} ({failed.backend})",
        "reason": failed.reason,
        "runs": f"{failed.attempts}, and {failed.crashes} crashes",
        "enqueued": iso(failed.enqueued_at),
        "died": iso(failed.failed_at),
        "replay of": failed.replay_of,
        "resolution": _resolved(failed),
        "replay": why_not_replayable(failed) or "possible",
    }
    if failed.resolution:
        del facts["replay"]
    for name, fact in facts.items():
        if fact:
            yield f"{name + ':':<13}{escaped(str(fact))}"
    error = ": ".join(part for part in (failed.error_type, failed.error_message) if part)
    payload = field_of(failed.body, "payload")
    sections = {
        "error": error,
        "payload": "(cannot be read)" if payload is None else laid_out(payload),
        "traceback": failed.traceback,
        "output": failed.output,
    }
    for title, text in sections.items():
        if text:
            yield f"\n{title}:"
            yield from (f"  {line}" for line in escaped(text.rstrip(), keep_lines=True).split("\n"))
    if attempts := _attempts(failed, using):
        yield "\nruns that failed:"
    for attempt in attempts:
        what = error_in_short(attempt.error_type, attempt.error_message)
        when = f"{iso(attempt.started_at)} by {attempt.worker or 'an unknown worker'}"
        yield escaped(f"  {attempt.number}: {attempt.outcome}, {when}: {what}")


def why_not_replayable(failed: FailedJob) -> str:
    """Why a replay would be refused here and now, or nothing."""
    try:
        checked(failed)
    except (Rejection, InvalidJob, ConfigurationError) as error:
        return str(error)
    return ""


def _attempts(failed: FailedJob, using: str) -> list[JobAttempt]:
    attempts = JobAttempt.objects.using(using)
    of_job = attempts.filter(job_id=failed.job_id, backend=failed.backend)
    return list(of_job.order_by("number", "pk"))


def _resolution(failed: FailedJob) -> dict[str, Any] | None:
    if not failed.resolution:
        return None
    return {
        "how": failed.resolution,
        "by": failed.resolved_by,
        "at": iso(failed.resolved_at),
        "note": failed.resolution_note,
        "replayed_as": _text(failed.replayed_as),
    }


def _resolved(failed: FailedJob) -> str:
    if not failed.resolution:
        return ""
    lived_on = f" as {failed.replayed_as}" if failed.replayed_as else ""
    note = f" ({failed.resolution_note})" if failed.resolution_note else ""
    return f"{failed.resolution}{lived_on} by {failed.resolved_by}, {iso(failed.resolved_at)}{note}"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
