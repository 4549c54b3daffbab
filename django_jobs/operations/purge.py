"""Delete old results, dead letters and attempts, in small steps. Live jobs are never touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from django.db.models import Exists, OuterRef, Q

from django_jobs.backends.base import HasHousekeeping
from django_jobs.backends.home import (
    clock_of,
    jobs_database,
    moment_before,
    record,
)
from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND
from django_jobs.db import cleanup
from django_jobs.db.dead_letters import GROUPED, count_gone
from django_jobs.db.transactions import in_transition
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from django_jobs.operations.brokers import brokers as aliases_of_brokers
from django_jobs.operations.dead_letters import Matching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime, timedelta

    from django.db.models import Model, QuerySet

PurgeState = Literal["succeeded", "dead", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many rows of each table were deleted, or would be."""

    results: int = 0
    dead_letters: int = 0
    attempts: int = 0

    @property
    def total(self) -> int:
        return self.results + self.dead_letters + self.attempts


def purge(
    *,
    state: PurgeState,
    older_than: timedelta,
    queue: str | None = None,
    dry_run: bool = False,
    batch: int = 1000,
    by: str = "",
    using: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Purged:
    """Delete the records of jobs that ended more than ``older_than`` ago.

    ``succeeded``: results (of skipped and cancelled jobs too); ``dead``: dead letters,
    resolved or not; the attempts of a job go with it. ``all``: both, and the attempts of
    jobs of which nothing else is left. ``progress`` is called with the rows of each step.
    Results that brokers keep themselves are deleted too, unless a database is named.
    """
    if state not in {"succeeded", "dead", "all"}:
        raise ValueError(f"there is no state {state!r} to purge; use succeeded, dead or all")
    alias = using or jobs_database()
    before = moment_before(alias, older_than)
    steps = _Steps(alias, batch, dry_run=dry_run, progress=progress or (lambda _: None))
    results = _ended(alias, before, queue)
    dead = Matching(queue=queue, until=before).letters(alias, unresolved=False)
    counted = {"results": 0, "dead_letters": 0, "attempts": 0}
    if state != "dead":
        counted["results"], attempts = steps.with_attempts(results)
        counted["attempts"] += attempts
        if using is None:
            for gone, attempts in steps.with_brokers(older_than, queue):
                counted["results"] += gone
                counted["attempts"] += attempts
    if state != "succeeded":
        counted["dead_letters"], attempts = steps.with_attempts(dead)
        counted["attempts"] += attempts
    if state == "all" and queue is None:
        counted["attempts"] += steps.alone(_orphans(alias, before))
    purged = Purged(**counted)
    if purged.total and not dry_run:
        detail = {"state": state, "older_than": str(older_than), **counted}
        record(alias, "purge", by=by, queue=queue or "", detail=detail)
    return purged


def sweep_results(limit: int = 1000, *, using: str | None = None) -> int:
    """Delete up to ``limit`` expired results, by the store's clock; returns how many.

    For the worker's housekeeping: bounded, and sweepers do not wait for each other.
    """
    alias = using or jobs_database()
    return cleanup.sweep_results(alias, clock_of(alias), limit)


class _Steps:
    """Walks tables by primary key, a batch in a transaction."""

    def __init__(
        self, alias: str, batch: int, *, dry_run: bool, progress: Callable[[int], None]
    ) -> None:
        self.alias = alias
        self.batch = batch
        self.dry_run = dry_run
        self.progress = progress

    def with_attempts(self, rows: QuerySet[Any]) -> tuple[int, int]:
        """Delete rows that name a job, and that job's attempts; returns how many of each."""
        attempts = JobAttempt.objects.using(self.alias)
        if self.dry_run:
            theirs = attempts.filter(job_id__in=rows.order_by().values("job_id"))
            return rows.count(), theirs.exclude(_is_live()).count()
        gone = gone_attempts = 0

        def work(_: Any) -> tuple[int, int]:
            keys = list(rows.order_by("pk").values_list("pk", "job_id")[: self.batch])
            jobs = [job_id for _pk, job_id in keys]
            theirs = attempts.filter(job_id__in=jobs).exclude(_is_live())
            deleted_attempts = _delete(self.alias, theirs) if jobs else 0
            chosen = rows.filter(pk__in=[pk for pk, _job_id in keys])
            if keys and rows.model is FailedJob:
                count_gone(self.alias, chosen.select_for_update().only(*GROUPED))
            return (_delete(self.alias, chosen) if keys else 0), deleted_attempts

        while True:
            count, attempt_count = in_transition(self.alias, work)
            gone, gone_attempts = gone + count, gone_attempts + attempt_count
            if not count:
                return gone, gone_attempts
            self.progress(count + attempt_count)

    def with_brokers(self, older_than: timedelta, queue: str | None) -> Iterator[tuple[int, int]]:
        """Delete results that brokers keep; yields the results and attempts of each step."""
        age = round(older_than.total_seconds() * SECOND)
        for alias in aliases_of_brokers():
            backend = backends[alias]
            if not isinstance(backend, HasHousekeeping):
                continue
            for step in backend.purge_results(age, queue, dry_run=self.dry_run):
                if not self.dry_run:
                    self.progress(sum(step))
                yield step

    def alone(self, rows: QuerySet[Any]) -> int:
        """Delete rows that no other rows belong to."""
        if self.dry_run:
            return rows.count()
        gone = 0

        def work(_: Any) -> int:
            keys = list(rows.order_by("pk").values_list("pk", flat=True)[: self.batch])
            return _delete(self.alias, rows.model._base_manager.filter(pk__in=keys))

        while count := in_transition(self.alias, work):
            gone += count
            self.progress(count)
        return gone


def _ended(alias: str, before: datetime, queue: str | None) -> QuerySet[JobResult]:
    over = Q(finished_at__lt=before) | Q(finished_at=None, enqueued_at__lt=before)
    rows = JobResult.objects.using(alias).filter(over)
    return rows if queue is None else rows.filter(queue=queue)


def _orphans(alias: str, before: datetime) -> QuerySet[JobAttempt]:
    """Old attempts of jobs that are neither live nor dead, and have no result."""
    attempts = JobAttempt.objects.using(alias).filter(finished_at__lt=before)
    recorded = _row_exists(JobResult, "job_id") | _row_exists(FailedJob, "job_id")
    return attempts.exclude(_is_live() | recorded)


def _is_live() -> Exists:
    return _row_exists(Job, "pk")


def _row_exists(model: type[Model], field: str) -> Exists:
    return Exists(model._base_manager.filter(**{field: OuterRef("job_id")}))


def _delete(alias: str, rows: QuerySet[Any]) -> int:
    # No table refers to these, so Django need not collect related rows.
    return int(rows.order_by()._raw_delete(alias) or 0)  # noqa: SLF001 - no signals, no collector
