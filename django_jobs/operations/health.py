"""What a health probe reports as wrong, for ``jobs_status --check`` and the health view."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from django.db.models import Count, Min

from django_jobs.backends.database.counts import overdue
from django_jobs.backends.home import store_now
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.conf import get_settings
from django_jobs.models import Worker
from django_jobs.operations.brokers import queues_to_ask, stats_of
from django_jobs.operations.overview import live
from django_jobs.outbox.lookup import backlogs
from django_jobs.routers import job_databases, tables_beside
from django_jobs.worker.queues import EVERY_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator


COUNTED_AT_MOST = 1_000  # of each priority: a single overdue job already fails the probe
MAX_AGE_SECONDS = 300.0
SEEN_WITHIN_SECONDS = 60.0
"""Workers update their row every ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """What still counts as healthy: the longest wait of a due job, and the fewest workers."""

    max_age: float = MAX_AGE_SECONDS
    min_workers: int = 1
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthProblem:
    """Something that a probe reports.

    ``kind`` is overdue, lease-expired, no-worker, outbox or unreachable. ``at_least`` means
    that counting stopped at ``jobs``, and there are more.
    """

    kind: str
    backend: str
    queue: str = ""
    jobs: int = 0
    seconds: float = 0.0
    detail: str = ""
    at_least: bool = False


def find_problems(limits: HealthLimits) -> list[HealthProblem]:
    """Everything that is wrong. A probe fails if there is anything, and only then."""
    settings = get_settings()
    problems: list[HealthProblem] = []
    for alias in job_databases(settings):
        now = store_now(alias)
        problems += _overdue(alias, now, limits)
        problems += _expired(alias, now, limits.queue)
        problems += _unserved(alias, now, limits)
    problems += _of_brokers(limits)
    problems += _stalled(limits.queue)
    return problems


def _stalled(only: str | None) -> Iterator[HealthProblem]:
    """Outboxes that no relay seems to empty."""
    for backlog in backlogs():
        if backlog.stalled and only in {None, backlog.queue}:
            yield HealthProblem(
                kind="outbox",
                backend=backlog.backend,
                queue=backlog.queue,
                jobs=backlog.jobs,
                seconds=backlog.oldest_seconds,
            )


def _overdue(alias: str, now: int, limits: HealthLimits) -> Iterator[HealthProblem]:
    """Due jobs that wait too long; scheduled ones too, as only workers make due jobs ready."""
    before = now - to_microseconds(limits.max_age)
    by_queue: dict[tuple[str, str], HealthProblem] = {}
    for late in overdue(alias, before, COUNTED_AT_MOST, limits.queue):
        key = late.backend, late.queue
        problem = by_queue.get(key) or HealthProblem(kind="overdue", backend=key[0], queue=key[1])
        age = 0.0 if late.oldest is None else (now - late.oldest) / SECOND
        by_queue[key] = replace(
            problem,
            jobs=problem.jobs + late.jobs,
            seconds=max(problem.seconds, age),
            at_least=problem.at_least or late.at_least,
        )
    yield from by_queue.values()


def _expired(alias: str, now: int, only: str | None) -> Iterator[HealthProblem]:
    """Leases that ended more than a lease ago: any running worker would have reaped them."""
    settings = get_settings()
    running = live(only, state="running", using=alias).filter(lease_expires__lt=now).order_by()
    for name in running.values_list("queue", flat=True).distinct():
        before = now - to_microseconds(settings.effective_lease(name))
        lost = running.filter(queue=name, lease_expires__lt=before).values_list("backend")
        for backend, jobs, oldest in lost.annotate(Count("pk"), Min("lease_expires")):
            age = (now - oldest) / SECOND
            yield HealthProblem(
                kind="lease-expired", backend=backend, queue=name, jobs=jobs, seconds=age
            )


def seen_lately() -> dict[str, int]:
    """How many workers of each backend were seen within a minute."""
    counts: dict[str, int] = {}
    for alias in job_databases(get_settings()):
        for backend, _queues in _seen(alias, store_now(alias)):
            counts[backend] = counts.get(backend, 0) + 1
    return counts


def _seen(alias: str, now: int, **chosen: bool) -> list[tuple[str, str]]:
    since = now - to_microseconds(SEEN_WITHIN_SECONDS)
    seen = Worker.objects.using(alias).filter(seen__gte=since, **chosen)
    return list(seen.values_list("backend", "queues"))


def _unserved(alias: str, now: int, limits: HealthLimits) -> Iterator[HealthProblem]:
    """Backends with too few workers that were seen lately."""
    if limits.min_workers <= 0:
        return
    rows = _seen(alias, now, draining=False)
    for name in _backends_of(alias, limits.queue):
        present = sum(
            backend == name and (limits.queue is None or _serves(queues, limits.queue))
            for backend, queues in rows
        )
        if present < limits.min_workers:
            detail = f"{present} seen within {SEEN_WITHIN_SECONDS:g} s, {limits.min_workers} wanted"
            yield HealthProblem(
                kind="no-worker", backend=name, queue=limits.queue or "", detail=detail
            )


def _backends_of(alias: str, queue: str | None) -> list[str]:
    """The backends whose workers have their rows in this database; with a queue, only its one."""
    settings = get_settings()
    wanted = list(settings.backends) if queue is None else [settings.backend_for(queue)]
    return [
        name
        for name in wanted
        if name in settings.backends
        and tables_beside(backends[name].home, settings) == alias
        and not backends[name].ends_with_process
        and not backends[name].runs_at_enqueue
    ]


def _serves(queues: str, wanted: str) -> bool:
    """Whether a worker whose row lists these queues takes jobs of the wanted one."""
    names = [part.strip().partition(":")[0] for part in queues.split(",") if part.strip()]
    return queues == EVERY_QUEUE or not names or wanted in names


def _of_brokers(limits: HealthLimits) -> Iterator[HealthProblem]:
    """Brokers that do not answer or have overdue jobs, from statistics: nothing is counted."""
    for backend, queue, problem in queues_to_ask():
        if queue and limits.queue not in {None, queue}:
            continue
        stats = problem or stats_of(backend, queue)
        if isinstance(stats, str):
            yield HealthProblem(kind="unreachable", backend=backend, queue=queue, detail=stats)
        elif stats.oldest_ready_seconds > limits.max_age:
            yield HealthProblem(
                kind="overdue",
                backend=backend,
                queue=queue,
                jobs=stats.ready,
                seconds=stats.oldest_ready_seconds,
            )
