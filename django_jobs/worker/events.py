"""From a delivery to its telemetry events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.outcome import Failed
from django_jobs.telemetry import events
from django_jobs.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_jobs.backends.base import Lease
    from django_jobs.handlers.base import JobContext
    from django_jobs.outcome import Outcome
    from django_jobs.worker.cycle import Report
    from django_jobs.worker.settle import Run, Verdict


def events_of(run: Run, verdict: Verdict, report: Report, outcome: Outcome) -> list[events.Event]:
    """The events of a settled delivery."""
    about: dict[str, Any] = {
        "job_id": report.job_id,
        "queue": report.queue,
        "handler": report.handler,
        "attempt": report.attempt,
        "trace_id": run.trace_id,
    }
    if report.status == "acked":
        return [events.JobSucceeded(**about, seconds=report.seconds, waited=run.waited)]
    error = outcome.error if isinstance(outcome, Failed) else None
    wrong: dict[str, Any] = {
        "error_type": error.type if error else "",
        "error_message": error.message if error else verdict.reason.partition(": ")[2],
        "seconds": report.seconds,
        "waited": run.waited,
    }
    match report.status:
        case "lease-lost":
            return [events.LeaseLost(**about)]
        case "error":
            return [events.SettleUnknown(**about)]
        case _ if verdict.dead:
            return [events.JobDied(**about, reason=verdict.reason.partition(":")[0], **wrong)]
        case "requeued" if error is not None:
            return [events.JobRetried(**about, delay=verdict.delay, **wrong)]
        case "cancelled" | "skipped-idempotent":
            return [events.JobEnded(**about, status=report.status, reason=verdict.reason)]
        case "crashed":
            about |= {"crashes": run.crashes + 1, "reason": verdict.reason, "delay": verdict.delay}
            return [events.JobCrashed(**about)]
        case _:
            fields: dict[str, Any] = {
                "delay": verdict.delay,
                "reason": verdict.reason,
                "status": report.status,
            }
            return [events.JobReturned(**about, **fields)]


def emit_claimed(leases: Iterable[Lease]) -> None:
    """Emit JobClaimed for each lease; the values of the index are not verified yet."""
    if not events.is_wanted(events.JobClaimed):
        return
    for lease in leases:
        message = lease.message
        events.emit(
            events.JobClaimed(
                job_id=lease.id,
                queue=lease.queue,
                handler=one_line(str(message.index.get("handler", ""))),
                attempt=message.header.attempts + 1,
                trace_id=one_line(str(message.index.get("trace_id") or lease.id.replace("-", ""))),
            )
        )


def emit_started(context: JobContext, handler: str) -> None:
    """Emit JobStarted: a handler is about to be called."""
    if events.is_wanted(events.JobStarted):
        about = {"job_id": context.id, "queue": context.queue, "handler": handler}
        events.emit(
            events.JobStarted(**about, attempt=context.attempt, trace_id=context.trace_id or "")
        )
