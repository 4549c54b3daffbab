"""Results whose time is over go, and what is remembered of their jobs' failed runs with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.backends.database.transactions import in_transition
from django_jobs.models import JobAttempt, JobResult

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.database.clock import StoreClock


def sweep_results(alias: str, clock: StoreClock, limit: int) -> int:
    """Delete up to ``limit`` of them; how many. Several sweepers do not wait for each other."""

    def work(connection: BaseDatabaseWrapper) -> int:
        expired = JobResult.objects.using(alias).filter(expires__lte=clock.now())
        expired = expired.order_by("expires")
        if connection.features.has_select_for_update_skip_locked:
            expired = expired.select_for_update(skip_locked=True)
        keys = list(expired.values_list("pk", flat=True)[:limit])
        if not keys:
            return 0
        # Nothing refers to these tables, so no collector has to be asked.
        JobAttempt.objects.using(alias).filter(job_id__in=keys)._raw_delete(alias)  # noqa: SLF001 - no signals, no collector
        gone = JobResult.objects.using(alias).filter(pk__in=keys)
        return int(gone._raw_delete(alias))  # noqa: SLF001 - as above

    return in_transition(alias, work)
