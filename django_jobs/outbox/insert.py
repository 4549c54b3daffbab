"""Store messages in the outbox, in the caller's transaction if there is one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import Error, connections

from django_jobs.backends.base import Enqueued
from django_jobs.backends.database.enqueue import statements_of
from django_jobs.backends.database.notify import Hints
from django_jobs.db.clock import StoreClock
from django_jobs.db.transactions import in_transition, is_connection_lost
from django_jobs.exceptions import EnqueueOutcomeUnknown
from django_jobs.models import OutboxJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.wire.envelope import Outgoing

_HINTED = "outbox of "


def write(home: str, backend: str, outgoing: Sequence[Outgoing]) -> list[Enqueued]:
    """Store messages for a backend in the database ``home``: either all, or none and raise.

    A message whose id exists already is left alone.
    """
    # MariaDB's INSERT IGNORE also hides other errors, such as a text truncated to its column.
    # None of these texts can be too long: all have been checked.
    _insert(home, backend, outgoing)
    _hints(home, backend).due(dict.fromkeys(message.terms.queue for message in outgoing))
    return [Enqueued(message.id, created=True) for message in outgoing]


def _insert(home: str, backend: str, outgoing: Sequence[Outgoing]) -> None:
    def work(_: Any) -> None:
        for batch in statements_of(outgoing):
            rows = _rows(backend, batch)
            OutboxJob.objects.using(home).bulk_create(rows, ignore_conflicts=True)

    if connections[home].in_atomic_block:
        work(None)
        return
    try:
        in_transition(home, work)
    except Error as error:
        if not is_connection_lost(error):
            raise
        raise EnqueueOutcomeUnknown(outgoing, type(error).__name__) from error


def _rows(backend: str, outgoing: Sequence[Outgoing]) -> list[OutboxJob]:
    now = StoreClock().now()
    return [
        OutboxJob(
            job_id=UUID(message.id),
            backend=backend,
            queue=message.terms.queue,
            handler=message.terms.job,
            body=message.body,
            signature=message.signature,
            key_id=message.key_id,
            created=now,
        )
        for message in outgoing
    ]


@lru_cache(maxsize=64)
def _hints(home: str, backend: str) -> Hints:
    return Hints(home, hinted(backend))


def hinted(backend: str) -> str:
    """The name under which hints about a backend's outbox are sent."""
    return f"{_HINTED}{backend}"
