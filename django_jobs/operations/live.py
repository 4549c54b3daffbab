"""Live jobs: what waits and runs, one by one and by queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from django.db.models import Count, Min, Q

from django_jobs.backends.database.unreadable import of_known_kinds
from django_jobs.clock import SECOND
from django_jobs.conf import get_settings
from django_jobs.models import FailedJob, Job, JobState, QueueControl
from django_jobs.operations.breakers import open_breakers
from django_jobs.operations.brokers import brokers, queues_of_brokers, stats_of
from django_jobs.operations.database import jobs_database, store_now
from django_jobs.routers import job_databases
from django_jobs.wire.rules import MAX_MOMENT

if TYPE_CHECKING:
    from django.db.models import QuerySet

LiveState = Literal["scheduled", "ready", "running", "blocked", "suspect"]
_STATES = {state.label: state for state in JobState}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """How one queue of one backend stands.

    ``blocked``: due, but a key that they share is held by others.
    ``breaker``: ``open`` or ``half-open``, or nothing. ``problem``: why its backend could
    not be asked.
    """

    backend: str
    queue: str
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    blocked: int = 0
    suspect: int = 0
    dead: int = 0
    oldest_ready_seconds: float = 0.0
    paused: bool = False
    paused_reason: str = ""
    breaker: str = ""
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
    return of_known_kinds(jobs).order_by("queue", "state", "rank", "due", "id")


def overview() -> list[QueueOverview]:
    """Every queue that has something in it, is configured or was paused.

    Five queries for each database that carries jobs, however many queues there are.
    """
    found: dict[tuple[str, str], QueueOverview] = {}
    settings = get_settings()
    for queue in settings.queues:
        alias = settings.backend_for(queue)
        found[alias, queue] = QueueOverview(backend=alias, queue=queue)
    for database in job_databases(settings):
        _add_database(found, database)
    _add_breakers(found)
    for alias, queue in queues_of_brokers():
        found.setdefault((alias, queue), QueueOverview(backend=alias, queue=queue))
    asked = brokers()
    return [_asked(known) if key[0] in asked else known for key, known in sorted(found.items())]


def _add_breakers(found: dict[tuple[str, str], QueueOverview]) -> None:
    for breaker in open_breakers():
        if breaker.kind == "queue":
            key = breaker.backend, breaker.name
            known = found.get(key) or QueueOverview(backend=key[0], queue=key[1])
            found[key] = replace(known, breaker=breaker.state)


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
            blocked=Count("pk", filter=Q(state=JobState.BLOCKED)),
            suspects=Count("pk", filter=Q(suspect=True)),
            oldest=Min("due", filter=ready & Q(due__lte=MAX_MOMENT)),
        )
    )
    return [
        (
            (row["backend"], row["queue"]),
            {
                "ready": row["ready"],
                "scheduled": row["scheduled"],
                "running": row["running"],
                "blocked": row["blocked"],
                "suspect": row["suspects"],
                "oldest_ready_seconds": (
                    0.0 if row["oldest"] is None else max(now - row["oldest"], 0) / SECOND
                ),
            },
        )
        for row in rows
        if all(isinstance(name, str) for name in (row["queue"], row["backend"]))  # not so on SQLite
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
    stats = stats_of(known.backend, known.queue)
    if isinstance(stats, str):
        return replace(known, problem=stats)
    return replace(
        known,
        ready=stats.ready,
        scheduled=stats.scheduled,
        running=stats.running,
        blocked=stats.blocked,
        suspect=stats.suspect,
        oldest_ready_seconds=stats.oldest_ready_seconds,
    )
