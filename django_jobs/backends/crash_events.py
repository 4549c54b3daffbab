"""A job that is charged a crash: how long it waits, and what is told when reaping charged it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.telemetry import events

if TYPE_CHECKING:
    from django_jobs.wire.envelope import Message

LOST_ALONE = "its lease ended without a verdict while it was to run alone"
CRASH_DELAYS = (1.0, 10.0, 60.0)
"""Seconds until a job runs again after its first crash, its second, and each further one.

What kills a process, such as memory that others use up, is often over soon; all crashes of a
job are not to be spent on it at once. Without jitter: such a job runs alone, so that there is
no herd to spread.
"""


def crash_delay(crashes: int) -> float:
    """Seconds until a job runs again that had so many crashes before this one."""
    return CRASH_DELAYS[min(crashes, len(CRASH_DELAYS) - 1)]


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
            delay=crash_delay(crashes),
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
