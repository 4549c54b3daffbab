"""Read from the outbox: how much waits there and for how long, and single jobs by id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import Count, Min, Q

from django_jobs.backends.base import Account, ids_known_to
from django_jobs.backends.database import read
from django_jobs.backends.database.read import account_of
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.db.clock import StoreClock
from django_jobs.db.transactions import in_reading
from django_jobs.ids import parse_id
from django_jobs.models import JobState, OutboxJob
from django_jobs.routers import job_databases, outbox_database
from django_jobs.wire.envelope import MAX_MOMENT, Header, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django_jobs.backends.base import Backend, Ended
    from django_jobs.conf import JobsSettings

STALLED_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A queue's jobs in the outbox. ``refused``: those refused by a broker that took others."""

    backend: str
    queue: str
    jobs: int
    refused: int
    oldest_seconds: float

    @property
    def stalled(self) -> bool:
        """Whether the relay seems to be dead: a live one moves jobs within a second or two."""
        return self.oldest_seconds > STALLED_SECONDS


def backlogs(settings: JobsSettings | None = None) -> list[Backlog]:
    """The backlogs of all outboxes, also of backends that no longer have one."""
    waiting = []
    for home in job_databases(settings or get_settings()):
        now = StoreClock().read(connections[home])
        rows = (
            OutboxJob.objects.using(home)
            .order_by("backend", "queue")
            .values("backend", "queue")
            .annotate(
                jobs=Count("pk"),
                oldest=Min("created"),
                refused=Count("pk", filter=Q(refusals__gt=0)),
            )
        )
        waiting += [
            Backlog(
                backend=row["backend"],
                queue=row["queue"],
                jobs=row["jobs"],
                refused=row["refused"],
                oldest_seconds=max(now - row["oldest"], 0) / SECOND,
            )
            for row in rows
        ]
    return waiting


def find(backend: str, job_id: str) -> OutboxJob | None:
    """The row of a job that is in the outbox of a backend, or None."""
    home, key = outbox_database(get_settings(), backend), parse_id(job_id)
    if home is None or key is None:
        return None
    rows = OutboxJob.objects.using(home).filter(backend=backend, job_id=key)
    return in_reading(home, rows.first)


def account(backend: str, job_id: str) -> Account | None:
    """The account of a job that is in the outbox or died there, or None."""
    home, row = outbox_database(get_settings(), backend), find(backend, job_id)
    if home is None:
        return None
    if row is None:
        return in_reading(home, lambda: account_of(home, backend, job_id))
    status = state_of(row)
    return Account(id=job_id, queue=row.queue, handler=row.handler, status=status, body=row.body)


def state(backend: str, job_id: str) -> str | None:
    """The state of a job in the outbox, as its backend would call it; or None."""
    row = find(backend, job_id)
    return None if row is None else state_of(row)


def state_of(row: OutboxJob) -> str:
    try:
        body = json.loads(row.body)
        waits = body.get("delay") or body.get("schedule")
    except (ValueError, AttributeError):  # the relay will refuse it
        waits = None
    return str((JobState.SCHEDULED if waits else JobState.READY).label)


def ended(backend: str, job_id: str) -> Ended | None:
    """How a job ended that never reached its backend, or None."""
    home = outbox_database(get_settings(), backend)
    key = parse_id(job_id)
    if home is None or key is None:
        return None
    return in_reading(home, lambda: read.ended(home, backend, key))


def known_ids(home: str, backend: Backend, jobs: Mapping[str, str]) -> set[str]:
    """The ids among ``jobs`` (id to queue) that have been enqueued before.

    A few statements for each thousand. If the backend does not answer, it counts as having none
    of them: the relay finds out when it pushes them again.
    """
    ids = list(jobs)
    enqueued = in_reading(home, lambda: read.ended_among(home, backend.alias, ids))
    for at in range(0, len(ids), read.IDS_PER_QUERY):
        rows = OutboxJob.objects.using(home).filter(
            backend=backend.alias, job_id__in=ids[at : at + read.IDS_PER_QUERY]
        )
        enqueued |= set(
            map(str, in_reading(home, partial(list, rows.values_list("job_id", flat=True))))
        )
    left = {job_id: queue for job_id, queue in jobs.items() if job_id not in enqueued}
    try:
        return enqueued | (ids_known_to(backend, left) if left else set())
    except Exception:  # noqa: BLE001 - an outbox takes jobs while its backend is away
        return enqueued


def message_of(row: OutboxJob, index: dict[str, Any]) -> Message:
    """The message of a row, with the columns of its index."""
    # It is not due here, whatever its schedule says.
    header = Header(available_at=MAX_MOMENT)
    return Message(row.body, row.signature, row.key_id, header, index)


def plain_index(row: OutboxJob) -> dict[str, Any]:
    """The columns of a job, without trusting its body."""
    fields = {"id": str(row.job_id), "backend": row.backend, "queue": row.queue}
    absent = dict.fromkeys(("trace_id", "tenant", "replay_of"))
    return {**fields, **absent, "handler": row.handler, "name": "", "rank": 0}
