"""Live jobs: what waits and runs, and calling off what waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from django.db.models import Count, Min, Q

from django_jobs.backends.database.transactions import in_transition
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.ids import parse_id
from django_jobs.models import FailedJob, Job, JobState, QueueControl
from django_jobs.operations.database import jobs_database, record, store_now
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_jobs.backends.base import Backend

LiveState = Literal["scheduled", "ready", "running", "suspect"]
_STATES = {state.label: state for state in JobState}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """How one queue of one backend stands. ``problem``: why its backend could not be asked."""

    backend: str
    queue: str
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    suspect: int = 0
    dead: int = 0
    oldest_ready_seconds: float = 0.0
    paused: bool = False
    paused_reason: str = ""
    problem: str = ""


def live(
    queue: str | None = None,
    handler: str | None = None,
    state: LiveState | None = None,
    *,
    using: str | None = None,
) -> QuerySet[Job]:
    """Live jobs in the order in which they are due; raises ValueError for an unknown state."""
    jobs = Job.objects.using(using or jobs_database())
    if state == "suspect":
        jobs = jobs.filter(suspect=True)
    elif state is not None:
        if state not in _STATES:
            raise ValueError(f"there is no state {state!r}; use {', '.join(_STATES)} or suspect")
        jobs = jobs.filter(state=_STATES[state])
    if queue is not None:
        jobs = jobs.filter(queue=queue)
    if handler is not None:
        jobs = jobs.filter(handler=handler)
    return jobs.order_by("queue", "state", "rank", "due", "id")


def cancel(job_id: str, *, by: str, reason: str = "") -> bool:
    """Call off a job that waits; False when it runs, ended or never was."""
    key = parse_id(job_id)
    if key is None:
        return False
    for alias in job_databases(get_settings()):
        row = Job.objects.using(alias).filter(pk=key).values("backend", "queue").first()
        if row is not None:
            return _cancel(backends[row["backend"]], key, row["queue"], alias, by, reason)
    for name, config in get_settings().backends.items():
        if database_of(config) is None and (backend := backends[name]).capabilities.cancel:
            found = backend.find(key) if backend.capabilities.peek else None
            queue = "" if found is None else found.queue
            if _cancel(backend, key, queue, jobs_database(), by, reason):
                return True
    return False


def _cancel(backend: Backend, key: str, queue: str, alias: str, by: str, reason: str) -> bool:
    def work(_: Any) -> bool:
        if not backend.cancel(key):
            return False
        record(
            alias,
            "cancel",
            by=by,
            reason=reason,
            backend=backend.alias,
            queue=queue,
            subject=key,
        )
        return True

    return in_transition(alias, work)


def overview() -> list[QueueOverview]:
    """Every queue that has something in it, is configured or was paused.

    Four queries for each database that carries jobs, however many queues there are.
    """
    found: dict[tuple[str, str], QueueOverview] = {}
    settings = get_settings()
    for queue in settings.queues:
        alias = settings.backend_for(queue)
        found[alias, queue] = QueueOverview(backend=alias, queue=queue)
    for database in job_databases(settings):
        _add_database(found, database)
    for (alias, queue), known in list(found.items()):
        config = settings.backends.get(alias)
        if config is not None and database_of(config) is None:
            found[alias, queue] = _asked(known)
    return [found[key] for key in sorted(found)]


def _add_database(found: dict[tuple[str, str], QueueOverview], database: str) -> None:
    for key, counts in (
        *_of_jobs(database),
        *_of_dead_letters(database),
        *_of_controls(database),
    ):
        known = found.get(key) or QueueOverview(backend=key[0], queue=key[1])
        found[key] = replace(known, **counts)


Counts = list[tuple[tuple[str, str], dict[str, Any]]]


def _of_jobs(database: str) -> Counts:
    now = store_now(database)
    ready = Q(state=JobState.READY)
    rows = (
        Job.objects.using(database)
        .order_by()
        .values("backend", "queue")
        .annotate(
            ready=Count("pk", filter=ready),
            scheduled=Count("pk", filter=Q(state=JobState.SCHEDULED)),
            running=Count("pk", filter=Q(state=JobState.RUNNING)),
            suspects=Count("pk", filter=Q(suspect=True)),
            oldest=Min("due", filter=ready),
        )
    )
    return [
        (
            (row["backend"], row["queue"]),
            {
                "ready": row["ready"],
                "scheduled": row["scheduled"],
                "running": row["running"],
                "suspect": row["suspects"],
                "oldest_ready_seconds": (
                    0.0 if row["oldest"] is None else max(now - row["oldest"], 0) / SECOND
                ),
            },
        )
        for row in rows
    ]


def _of_dead_letters(database: str) -> Counts:
    unresolved = FailedJob.objects.using(database).filter(resolution="").order_by()
    rows = unresolved.values("backend", "queue").annotate(dead=Count("pk"))
    return [((row["backend"], row["queue"]), {"dead": row["dead"]}) for row in rows]


def _of_controls(database: str) -> Counts:
    rows = QueueControl.objects.using(database).values("backend", "queue", "paused", "reason")
    return [
        (
            (row["backend"], row["queue"]),
            {"paused": row["paused"], "paused_reason": row["reason"] if row["paused"] else ""},
        )
        for row in rows
    ]


def _asked(known: QueueOverview) -> QueueOverview:
    """What a backend outside the database says of its queue."""
    try:
        stats = backends[known.backend].stats(known.queue)
    except Exception as error:  # noqa: BLE001 - one broken backend must not hide the others
        return replace(known, problem=f"{type(error).__name__}: {error}")
    return replace(
        known,
        ready=stats.ready,
        scheduled=stats.scheduled,
        running=stats.running,
        suspect=stats.suspect,
        oldest_ready_seconds=stats.oldest_ready_seconds,
    )
