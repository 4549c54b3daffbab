"""Looking into the outbox: how much waits there and for how long, and one job by its id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connections
from django.db.models import Count, Min, Q

from django_jobs.backends.base import Account
from django_jobs.backends.database import reading
from django_jobs.backends.database.accounting import account_of
from django_jobs.backends.database.clock import StoreClock
from django_jobs.backends.database.transactions import in_reading
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.ids import parse_id
from django_jobs.models import JobState, OutboxJob
from django_jobs.routers import job_databases, outbox_database

if TYPE_CHECKING:
    from django_jobs.backends.base import Ended
    from django_jobs.conf import JobsSettings

STALLED_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What of a queue waits in the outbox. ``refused``: those the broker took others before."""

    backend: str
    queue: str
    jobs: int
    refused: int
    oldest_seconds: float

    @property
    def stalled(self) -> bool:
        """Whether the relay seems to be dead: workers move jobs on within a second or two."""
        return self.oldest_seconds > STALLED_SECONDS


def backlogs(settings: JobsSettings | None = None) -> list[Backlog]:
    """What waits in every outbox, also of backends that have none any more."""
    found = []
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
        found += [
            Backlog(
                backend=row["backend"],
                queue=row["queue"],
                jobs=row["jobs"],
                refused=row["refused"],
                oldest_seconds=max(now - row["oldest"], 0) / SECOND,
            )
            for row in rows
        ]
    return found


def find(backend: str, job_id: str) -> OutboxJob | None:
    """The row of a job that is in the outbox of a backend, or None."""
    home, key = outbox_database(get_settings(), backend), parse_id(job_id)
    if home is None or key is None:
        return None
    rows = OutboxJob.objects.using(home).filter(backend=backend, job_id=key)
    return in_reading(home, rows.first)


def account(backend: str, job_id: str) -> Account | None:
    """All that is known of a job that is in the outbox, or died there; or None."""
    home, row = outbox_database(get_settings(), backend), find(backend, job_id)
    if home is None:
        return None
    if row is None:
        return in_reading(home, lambda: account_of(home, backend, job_id))
    status = _state(row)
    return Account(id=job_id, queue=row.queue, handler=row.handler, status=status, body=row.body)


def state(backend: str, job_id: str) -> str | None:
    """The state of a job that is in the outbox of a backend, as its backend would say it."""
    row = find(backend, job_id)
    return None if row is None else _state(row)


def _state(row: OutboxJob) -> str:
    try:
        said = json.loads(row.body)
        waits = said.get("delay") or said.get("schedule")
    except (ValueError, AttributeError):  # the relay will judge it
        waits = None
    return str((JobState.SCHEDULED if waits else JobState.READY).label)


def ended(backend: str, job_id: str) -> Ended | None:
    """How a job ended that never got out of the outbox alive, or None."""
    home = outbox_database(get_settings(), backend)
    key = parse_id(job_id)
    if home is None or key is None:
        return None
    return in_reading(home, lambda: reading.ended(home, backend, key))
