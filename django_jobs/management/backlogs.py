"""What waits in the outbox, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.management.output import shortened, span

if TYPE_CHECKING:
    from django_jobs.outbox.lookup import Backlog

BACKLOG_HEADERS = ("outbox of", "queue", "jobs", "refused", "oldest", "")


def backlog_row(one: Backlog) -> tuple[object, ...]:
    """The cells under BACKLOG_HEADERS."""
    note = "does it move? is a worker of this backend there?" if one.stalled else ""
    return (
        shortened(one.backend),
        shortened(one.queue),
        one.jobs,
        one.refused or "",
        span(one.oldest_seconds),
        note,
    )
