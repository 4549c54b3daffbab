"""Deletes what has expired: results, failed runs, and dead letters if the settings say so.

Each step is bounded and uses an index; several sweepers do not wait for each other. The failed
runs of a job are deleted together with its result or dead letter, unless the job is live again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import Exists, OuterRef

from django_jobs.clock import to_microseconds
from django_jobs.conf import get_settings
from django_jobs.db.clock import for_people
from django_jobs.db.dead_letters import GROUPED, count_gone
from django_jobs.db.transactions import in_transition
from django_jobs.models import EndedIds, FailedJob, Job, JobAttempt, JobResult

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model, QuerySet

    from django_jobs.db.clock import StoreClock

ATTEMPTS_KEPT_SECONDS = 86_400.0


def sweep_results(alias: str, clock: StoreClock, limit: int) -> int:
    """Delete up to ``limit`` expired results; return how many."""

    def work(connection: BaseDatabaseWrapper) -> int:
        expired = JobResult.objects.using(alias).filter(expires__lte=clock.now())
        keys = _free(connection, expired.order_by("expires"), limit, "pk")
        return _gone(alias, JobResult, [pk for (pk,) in keys], [pk for (pk,) in keys])

    return in_transition(alias, work)


def sweep_ended(alias: str, clock: StoreClock, limit: int) -> int:
    """Delete up to ``limit`` rows of ids that ended long enough ago; return how many."""

    def work(connection: BaseDatabaseWrapper) -> int:
        now = clock.read(connection)
        rows = EndedIds.objects.using(alias).order_by("id")  # ordered by their end as well
        over = [pk for pk, ends in _free(connection, rows, limit, "pk", "expires") if ends <= now]
        gone = EndedIds.objects.using(alias).filter(pk__in=over)
        return int(gone._raw_delete(alias)) if over else 0  # noqa: SLF001 - as below

    return in_transition(alias, work)


def sweep_dead_letters(alias: str, clock: StoreClock, ttl: float | None, limit: int) -> int:
    """Delete up to ``limit`` dead letters older than ``ttl``, resolved or not; return how many."""
    if ttl is None:
        return 0

    def work(connection: BaseDatabaseWrapper) -> int:
        before = _moment_before(connection, clock, ttl)
        old = FailedJob.objects.using(alias).filter(failed_at__lt=before)
        keys = _free(connection, old.order_by("failed_at", "id"), limit, "pk", "job_id")
        gone = FailedJob.objects.using(alias).filter(pk__in=[pk for pk, _ in keys])
        count_gone(alias, gone.only(*GROUPED))
        return _gone(alias, FailedJob, [pk for pk, _ in keys], [job_id for _, job_id in keys])

    return in_transition(alias, work)


class Sweeper:
    """The cleanup that a worker does on one database, one bounded step of each kind at a time."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._seen = 0

    def sweep(self, clock: StoreClock, limit: int) -> int:
        """Delete up to ``limit`` expired rows of each kind; return how many."""
        settings = get_settings()
        return (
            sweep_results(self.alias, clock, limit)
            + sweep_ended(self.alias, clock, limit)
            + sweep_dead_letters(self.alias, clock, settings.dead_letter_ttl, limit)
            + self._sweep_attempts(clock, settings.result_ttl, limit)
        )

    def _sweep_attempts(self, clock: StoreClock, ttl: float, limit: int) -> int:
        """Look at the next ``limit`` old attempts, and delete those without a job or its remains.

        These are the failed runs of jobs that ended well and whose result was not kept. The
        attempts of dead letters may stay for years; so each step continues after the last one.
        """

        def work(connection: BaseDatabaseWrapper) -> tuple[int, int]:
            attempts = JobAttempt.objects.using(self.alias)
            before = _moment_before(connection, clock, max(ttl, ATTEMPTS_KEPT_SECONDS))
            old = attempts.filter(pk__gt=self._seen, finished_at__lt=before)
            keys = list(old.order_by("pk").values_list("pk", flat=True)[:limit])
            alone = attempts.filter(pk__in=keys).exclude(
                _exists(Job, "pk") | _exists(JobResult, "job_id") | _exists(FailedJob, "job_id")
            )
            gone = list(alone.values_list("pk", flat=True)) if keys else []
            if gone:
                attempts.filter(pk__in=gone)._raw_delete(self.alias)  # noqa: SLF001 - as below
            return (keys[-1] if len(keys) == limit else 0), len(gone)

        self._seen, gone = in_transition(self.alias, work)
        return gone


def _free(
    connection: BaseDatabaseWrapper, rows: QuerySet[Any], limit: int, *fields: str
) -> list[Any]:
    """The first rows that no other sweeper has locked."""
    if connection.features.has_select_for_update_skip_locked:
        rows = rows.select_for_update(skip_locked=True)
    return list(rows.values_list(*fields)[:limit])


def _gone(alias: str, model: type[Model], keys: list[Any], job_ids: list[Any]) -> int:
    if not keys:
        return 0
    # No foreign key refers to these tables, so no collector is needed.
    attempts = JobAttempt.objects.using(alias).filter(job_id__in=job_ids)
    attempts.exclude(_exists(Job, "pk"))._raw_delete(alias)  # noqa: SLF001 - no signals, no collector
    gone = model._base_manager.using(alias).filter(pk__in=keys)
    return int(gone._raw_delete(alias))  # noqa: SLF001 - as above


def _exists(model: type[Model], field: str) -> Exists:
    return Exists(model._base_manager.filter(**{field: OuterRef("job_id")}))


def _moment_before(connection: BaseDatabaseWrapper, clock: StoreClock, seconds: float) -> datetime:
    return for_people(clock.read(connection) - to_microseconds(seconds))
