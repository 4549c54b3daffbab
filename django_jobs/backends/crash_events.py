"""Crashes: how long the job waits, and the event JobCrashed for a crash charged by reaping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.telemetry import events

if TYPE_CHECKING:
    from django_jobs.wire.envelope import Message

LOST_ALONE = "its lease ended without a verdict while it was to run alone"
CRASH_DELAYS = (1.0, 10.0, 60.0)
"""Seconds until a job runs again after its first crash, its second, and each further one.

The cause of a killed process, such as a lack of memory, is often over soon; a job should not use
up all its crashes meanwhile. Without jitter: such a job runs alone, so there is no herd to spread.
"""


def crash_delay(crashes: int) -> float:
    """Seconds until a job runs again after a crash; ``crashes``: how many it had before."""
    return CRASH_DELAYS[min(crashes, len(CRASH_DELAYS) - 1)]


def emit_crashed(
    job_id: str, *, queue: str, handler: str, attempts: int, crashes: int, trace_id: str | None
) -> None:
    """Emit JobCrashed for a crash charged by reaping; ``attempts`` and ``crashes`` before it."""
    events.emit(
        events.JobCrashed(
            job_id=job_id,
            queue=queue,
            handler=handler,
            attempt=attempts + 1,
            trace_id=trace_id or job_id.replace("-", ""),
            crashes=crashes + 1,
            delay=crash_delay(crashes),
            reason=LOST_ALONE,
        )
    )


def emit_crash_of(message: Message) -> None:
    """As ``emit_crashed``, for a message as it was before the crash."""
    index, header = message.index, message.header
    emit_crashed(
        message.id or index["id"],
        queue=index["queue"],
        handler=index["handler"],
        attempts=header.attempts,
        crashes=header.crashes,
        trace_id=index["trace_id"],
    )
