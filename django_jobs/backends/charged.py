"""What is told of a job that is charged for the loss of its worker, whatever carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.telemetry import events

if TYPE_CHECKING:
    from django_jobs.wire.envelope import Message

LOST_ALONE = "its worker was lost while it was to run alone"


def tell_charged(
    job_id: str, *, queue: str, handler: str, attempts: int, crashes: int, trace_id: str | None
) -> None:
    """Tell of a crash that reaping charged; attempts and crashes as they were before."""
    events.emit(
        events.JobCrashed(
            job_id=job_id,
            queue=queue,
            handler=handler,
            attempt=attempts + 1,
            trace_id=trace_id or job_id.replace("-", ""),
            crashes=crashes + 1,
            reason=LOST_ALONE,
        )
    )


def tell_of(message: Message) -> None:
    """The same, of a message as it was before."""
    index, header = message.index, message.header
    tell_charged(
        message.id or index["id"],
        queue=index["queue"],
        handler=index["handler"],
        attempts=header.attempts,
        crashes=header.crashes,
        trace_id=index["trace_id"],
    )
