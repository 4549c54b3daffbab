"""Queries that change nothing: depths, the next messages, one job, and how a job ended."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_jobs.backends.base import Account, Ended, QueueStats
from django_jobs.backends.database.counts import bands, counts, suspects
from django_jobs.backends.database.rows import ROW_FIELDS, glimpse_of
from django_jobs.backends.database.unreadable import Rows, readable
from django_jobs.backends.ended_jobs import dead_account, failed_runs_of, microseconds_of
from django_jobs.backends.values import reason_of
from django_jobs.clock import SECOND
from django_jobs.models import (
    EndedIds,
    FailedJob,
    Job,
    JobResult,
    JobState,
    QueueControl,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

    from django_jobs.backends.base import Glimpse
    from django_jobs.db.clock import StoreClock


COUNTED_AT_MOST = 10_000
IDS_PER_QUERY = 1000
ENDED_SECONDS = 3600.0
"""How long at least the id of every ended job is kept."""


def stats(alias: str, clock: StoreClock, backend: str, queue: str) -> QueueStats:
    """Count what waits in a queue, up to COUNTED_AT_MOST in each state."""
    fields: dict[str, Any] = {}
    stopped = []
    for count in counts(alias, bands(alias, queue), COUNTED_AT_MOST):
        name = JobState(count.state).label
        if count.backend == backend:
            fields[name] = count.jobs
            stopped += [name] * count.at_least
            if count.state == JobState.READY and count.oldest is not None:
                age = max(clock.read(connections[alias]) - count.oldest, 0) / SECOND
                fields["oldest_ready_seconds"] = age
    suspicious = suspects(alias, COUNTED_AT_MOST)
    stopped += ["suspect"] * (suspicious.total() >= COUNTED_AT_MOST)
    return QueueStats(**fields, suspect=suspicious[backend, queue], at_least=tuple(stopped))


def peek(alias: str, backend: str, queue: str, limit: int) -> list[Glimpse]:
    """The next messages, ready ones first, without rows that cannot be read."""
    jobs = Job.objects.using(alias).filter(queue=queue, backend=backend)
    ready = jobs.filter(state=JobState.READY).order_by("rank", "due", "id")
    scheduled = jobs.filter(state=JobState.SCHEDULED).order_by("due")
    seen = readable(Rows(ready, limit), ROW_FIELDS, glimpse_of)
    if len(seen) < limit:
        # Ordered only as the index is: otherwise MariaDB would sort all scheduled jobs.
        later = readable(Rows(scheduled, limit - len(seen)), ROW_FIELDS, glimpse_of)
        seen += sorted(later, key=lambda job: (job.due, job.message.index["rank"], job.id))
    return seen


def find(alias: str, backend: str, job_id: str) -> Glimpse | None:
    """A live job."""
    jobs = Job.objects.using(alias).filter(pk=job_id, backend=backend)
    return next(iter(readable(Rows(jobs, 1), ROW_FIELDS, glimpse_of)), None)


def paused_with_jobs(alias: str, backend: str, queues: Sequence[str]) -> bool:
    """Whether one of the queues has a ready job, but is paused."""
    controls = QueueControl.objects.using(alias).filter(backend=backend, paused=True)
    paused = list(controls.filter(queue__in=queues).values_list("queue", flat=True))
    ready = Job.objects.using(alias).filter(backend=backend, state=JobState.READY)
    return bool(paused) and ready.filter(queue__in=paused).exists()


def ended_among(alias: str, backend: str, job_ids: Sequence[str]) -> set[str]:
    """Those of some jobs that have left a result, a dead letter, or their id alone."""
    ended_ids: set[str] = set()
    for at in range(0, len(job_ids), IDS_PER_QUERY):
        some = job_ids[at : at + IDS_PER_QUERY]
        for model in (JobResult, FailedJob):
            rows = model._default_manager.using(alias).filter(backend=backend, job_id__in=some)
            ended_ids.update(map(str, rows.values_list("job_id", flat=True)))
        noted = EndedIds.objects.using(alias).filter(start__in=set(map(start_of, some)))
        for start, ids in noted.values_list("start", "ids"):
            ended_ids.update({start + rest for rest in ids.split()}.intersection(some))
    return ended_ids


def known_among(alias: str, backend: str, job_ids: Sequence[str]) -> set[str]:
    """Those of some jobs that live, or have left something behind."""
    live: set[str] = set()
    for at in range(0, len(job_ids), IDS_PER_QUERY):
        some = job_ids[at : at + IDS_PER_QUERY]
        rows = Job.objects.using(alias).filter(backend=backend, pk__in=some)
        live.update(map(str, rows.values_list("pk", flat=True)))
    # In this order: a job may end between the two queries.
    return live | ended_among(alias, backend, [job_id for job_id in job_ids if job_id not in live])


def outcomes(alias: str, backend: str, job_ids: Sequence[str]) -> dict[str, str | None]:
    """How some jobs ended; None for a live one. Jobs without a trace are left out."""
    statuses: dict[str, str | None] = {}
    for at in range(0, len(job_ids), IDS_PER_QUERY):
        some = job_ids[at : at + IDS_PER_QUERY]
        # The live ones first: a job that is not among them has ended, and its end can be seen.
        live = Job.objects.using(alias).filter(pk__in=some).values_list("pk", flat=True)
        statuses.update(dict.fromkeys(map(str, live)))
        if gone := [job_id for job_id in some if job_id not in statuses]:
            results = JobResult.objects.using(alias).filter(pk__in=gone)
            statuses.update(
                (str(key), status) for key, status in results.values_list("pk", "status")
            )
            dead = FailedJob.objects.using(alias).filter(job_id__in=gone, backend=backend)
            statuses.update(dict.fromkeys(map(str, dead.values_list("job_id", flat=True)), "dead"))
    return statuses


def start_of(job_id: str) -> str:
    """The start of an id, shared by the ids made within about a minute."""
    return job_id[:8]


def ended(alias: str, backend: str, job_id: str) -> Ended | None:
    """How a job ended, from its result or its dead letter."""
    result = JobResult.objects.using(alias).filter(pk=job_id, backend=backend).first()
    if result is not None:
        return Ended(
            status=result.status,
            value_json=result.value,
            reason=reason_of(result.status, result.output),
            output=result.output,
            attempts=result.attempts,
            finished_at=result.finished_at,
        )
    dead = FailedJob.objects.using(alias).filter(job_id=job_id, backend=backend).first()
    if dead is None:
        return None
    return Ended(
        status="dead",
        reason=dead.reason,
        error_type=dead.error_type,
        error_message=dead.error_message,
        traceback=dead.traceback,
        output=dead.output,
        attempts=dead.attempts,
        finished_at=dead.failed_at,
    )


def account_of(alias: str, backend: str, job_id: str) -> Account | None:
    """The account of a job of one backend, or None when there is no trace of it."""
    # The result first: most callers wait for the end, and then one read by primary key is enough.
    # And last once more, for a job that ended well between the first query and the second.
    for look in (_ended_well, _alive, dead_account, _ended_well):
        if account := look(alias, backend, job_id):
            return account
    return None


def _ended_well(alias: str, backend: str, job_id: str) -> Account | None:
    # By primary key only: an order or a limit would be more SQL for Django to compile.
    row = next(iter(_results(alias).filter(pk=job_id)), None)
    if row is None or row[0] != backend:
        return None
    _, queue, handler, status, body, failed, worker, started, finished, value, output = row
    return Account(
        id=job_id,
        queue=queue,
        handler=handler,
        status=status,
        body=body,
        attempts=failed_runs_of(alias, backend, job_id, failed),
        failed_attempts=failed,
        worker=worker,
        started_at=microseconds_of(started),
        finished_at=microseconds_of(finished),
        value_json=value,
        reason=reason_of(status, output),
        output=output,
    )


@cache
def _results(alias: str) -> QuerySet[JobResult, Any]:
    """The columns of an account, prepared once: naming them costs a quarter of the query."""
    return JobResult.objects.using(alias).values_list(
        "backend", "queue", "handler", "status", "body", "attempts", "worker", "started_at",
        "finished_at", "value", "output",
    )  # fmt: skip


def _alive(alias: str, backend: str, job_id: str) -> Account | None:
    jobs = Job.objects.using(alias).filter(pk=job_id, backend=backend)
    row = jobs.values_list(
        "queue", "handler", "state", "body", "attempts", "worker", "leased_at"
    ).first()
    if row is None:
        return None
    queue, handler, state, body, failed, worker, leased_at = row
    runs = state == JobState.RUNNING
    return Account(
        id=job_id,
        queue=queue,
        handler=handler,
        status=JobState.label_of(state),
        body=body,
        attempts=failed_runs_of(alias, backend, job_id, failed),
        failed_attempts=failed,
        worker=worker or "",
        started_at=leased_at if runs else None,
    )
