"""How the queues and workers stand, and whether somebody should be woken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Min

from django_jobs.clock import SECOND, from_datetime, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.management.output import aware, escaped, from_now, iso, shortened, span
from django_jobs.models import JobState, Worker
from django_jobs.operations import live, overview
from django_jobs.operations.database import store_now
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django_jobs.operations import QueueOverview

QUEUE_HEADERS = (
    "queue",
    "backend",
    "ready",
    "scheduled",
    "running",
    "suspect",
    "dead",
    "oldest ready",
    "paused",
)
WORKER_HEADERS = ("worker", "backend", "queues", "processes", "running", "started", "seen")


def queues(only: str | None) -> list[QueueOverview]:
    """Every queue, or the one of that name on each backend."""
    return [queue for queue in overview() if only in {None, queue.queue}]


def queue_row(queue: QueueOverview) -> tuple[object, ...]:
    """The cells under QUEUE_HEADERS."""
    paused = f"yes: {shortened(queue.paused_reason)}" if queue.paused_reason else "yes"
    known: tuple[object, ...] = (
        queue.ready,
        queue.scheduled,
        queue.running,
        queue.suspect,
        queue.dead,
        span(queue.oldest_ready_seconds) if queue.ready else "",
    )
    if queue.problem:
        known = ("?", "?", "?", "?", queue.dead, shortened(queue.problem))
    return (queue.queue, queue.backend, *known, paused if queue.paused else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A worker, and what time it was in the database that knows of it."""

    worker: Worker
    now: int

    def row(self) -> tuple[object, ...]:
        """The cells under WORKER_HEADERS."""
        worker = self.worker
        started = (from_datetime(aware(worker.started_at)) - self.now) / SECOND
        running = f"{worker.running} (draining)" if worker.draining else worker.running
        return (
            f"{worker.host}:{worker.pid}",
            worker.backend,
            worker.queues or "every",
            worker.processes,
            running,
            from_now(started),
            from_now((worker.seen - self.now) / SECOND),
        )

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        worker = self.worker
        known = ("host", "pid", "backend", "queues", "processes", "concurrency", "running")
        return {
            "id": str(worker.pk),
            **{name: getattr(worker, name) for name in known},
            "draining": worker.draining,
            "started_at": iso(worker.started_at),
            "seen_at": iso(worker.seen),
            "seen_seconds_ago": max(self.now - worker.seen, 0) / SECOND,
        }


def workers() -> list[Seen]:
    """The workers that told of themselves, the latest seen first."""
    return [
        Seen(worker=worker, now=store_now(alias))
        for alias in job_databases(get_settings())
        for worker in Worker.objects.using(alias).order_by("-seen")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that a probe reports. ``kind``: overdue, lease-expired or unreachable."""

    kind: str
    backend: str
    queue: str
    jobs: int = 0
    seconds: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        where = escaped(f"{self.queue} ({self.backend})")
        if self.kind == "overdue":
            return f"overdue: {where} has {self.jobs} waiting, one for {span(self.seconds)}"
        if self.kind == "lease-expired":
            return (
                f"lease expired: {where} has {self.jobs} running for workers that are gone, one "
                f"for {span(self.seconds)}; is a worker there to reap them?"
            )
        return f"unreachable: {where}: {escaped(self.detail)}"


def troubles(shown: Sequence[QueueOverview], max_age: float, only: str | None) -> list[Trouble]:
    """What is wrong: nothing else than that makes a probe fail."""
    settings = get_settings()
    found: list[Trouble] = []
    for alias in job_databases(settings):
        now = store_now(alias)
        found += _overdue(alias, now, max_age, only)
        found += _expired(alias, now, only)
    for queue in shown:
        config = settings.backends.get(queue.backend)
        if config is None or database_of(config) is not None:
            continue
        trouble = partial(Trouble, backend=queue.backend, queue=queue.queue)
        age = queue.oldest_ready_seconds
        if queue.problem:
            found.append(trouble(kind="unreachable", detail=queue.problem))
        elif age > max_age:
            found.append(trouble(kind="overdue", jobs=queue.ready, seconds=age))
    return found


def _overdue(alias: str, now: int, max_age: float, only: str | None) -> Iterator[Trouble]:
    """Scheduled ones too: where no worker runs, nobody makes a due job ready."""
    waiting = live(only, using=alias).exclude(state=JobState.RUNNING)
    late = waiting.filter(due__lt=now - to_microseconds(max_age)).order_by()
    rows = late.values_list("backend", "queue").annotate(Count("pk"), Min("due"))
    for backend, queue, jobs, oldest in rows:
        age = (now - oldest) / SECOND
        yield Trouble(kind="overdue", backend=backend, queue=queue, jobs=jobs, seconds=age)


def _expired(alias: str, now: int, only: str | None) -> Iterator[Trouble]:
    """Leases that ended more than a lease ago, which any worker would have noticed."""
    settings = get_settings()
    running = live(only, state="running", using=alias).filter(lease_expires__lt=now).order_by()
    for name in running.values_list("queue", flat=True).distinct():
        before = now - to_microseconds(settings.effective_lease(name))
        lost = running.filter(queue=name, lease_expires__lt=before).values_list("backend")
        for backend, jobs, oldest in lost.annotate(Count("pk"), Min("lease_expires")):
            age = (now - oldest) / SECOND
            yield Trouble(kind="lease-expired", backend=backend, queue=name, jobs=jobs, seconds=age)
