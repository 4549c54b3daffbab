"""Enqueue the job of a tick."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import transaction

from django_jobs.backends.base import joins
from django_jobs.clock import to_datetime
from django_jobs.conf import get_settings
from django_jobs.conf.model import INLINE_QUEUE
from django_jobs.cron.options import Overlap
from django_jobs.cron.schedule import keeping_results
from django_jobs.enqueue import DefinedJob
from django_jobs.exceptions import EnqueueOutcomeUnknown
from django_jobs.models import Job, ScheduleTick, TickDecision, TickOutcome
from django_jobs.routes import way

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.cron.schedule import Schedule
    from django_jobs.enqueue import PreparedJob


def prepared(schedule: Schedule, tick: int) -> PreparedJob[Any]:
    """The job of a tick, not enqueued yet; raises InvalidJob. Its meta names the tick."""
    options = keeping_results(schedule.job.options, get_settings().result_ttl)
    moment = to_datetime(tick).isoformat()
    changes: dict[str, Any] = {
        "meta": {"schedule": schedule.name, "tick": moment, **(options.meta or {})}
    }
    if schedule.queue is None:
        # One attempt, even if its process dies.
        changes |= {"queue": INLINE_QUEUE, "max_retries": 0, "max_crashes": 1}
    if schedule.jitter:
        changes["delay"] = random.uniform(0, schedule.jitter)  # noqa: S311 - spreads load, hides nothing
    locked = options.single_instance or options.concurrency_key
    if schedule.overlap is Overlap.QUEUE_ONE and not locked:
        changes["single_instance"] = f"schedule {schedule.name}"[:255]
    job = DefinedJob(schedule.handler, schedule.job.payload, options.using(**changes))
    return job.prepare()


def hand_over(
    alias: str,
    row: ScheduleTick,
    job: PreparedJob[Any],
    in_child: Callable[[str, int, PreparedJob[Any]], None] | None,
) -> None:
    """Enqueue the job of a tick whose row was written in this transaction.

    If the job goes to the same database, or an outbox in it, both are committed or neither.
    A broker without an outbox gets the job after the commit: if the process dies in between,
    the tick has no job, and its outcome becomes unknown.
    """
    backend = job.plan.resolve()[0]
    if in_child is not None and backend.runs_at_enqueue:
        transaction.on_commit(lambda: in_child(row.name, row.tick, job), using=alias)
    elif is_joined(job, alias):
        handle = job.enqueue()
        if not handle.created:
            row.job_id, row.reason = UUID(handle.id), "a job with its unique_key lives already"
            _rows(alias, row).update(job_id=row.job_id, reason=row.reason)
        else:
            jobs = Job.objects.using(alias).filter(pk=handle.id)
            jobs.update(schedule=row.name, tick=row.tick)
    else:
        transaction.on_commit(lambda: _to_broker(alias, row, job), using=alias)


def is_joined(job: PreparedJob[Any], alias: str) -> bool:
    """Whether a job and the row of its tick can be committed together."""
    backend, seal, settings = job.plan.resolve()
    if backend.runs_at_enqueue:
        return False
    home = way(settings, backend, seal.terms.queue).outbox
    return joins(backend, alias) if home is None else home == alias


def _to_broker(alias: str, row: ScheduleTick, job: PreparedJob[Any]) -> None:
    try:
        job.enqueue()
    except EnqueueOutcomeUnknown as error:
        # The job may exist: the tick keeps its id, and its outcome is looked for.
        row.reason = str(error)[:1000]
        _rows(alias, row).update(reason=row.reason)
    except Exception as error:  # noqa: BLE001 - whatever a broker's client raises; the tick records it
        failed(alias, row, error)


def failed(alias: str, row: ScheduleTick, error: BaseException) -> None:
    """Record that a tick has no job, and why."""
    row.decision, row.outcome, row.job_id = TickDecision.FAILED, TickOutcome.NONE, None
    row.reason = f"{type(error).__name__}: {error}"[:1000]
    _rows(alias, row).update(
        decision=row.decision, outcome=row.outcome, reason=row.reason, job_id=None
    )


def _rows(alias: str, row: ScheduleTick) -> Any:
    return ScheduleTick.objects.using(alias).filter(pk=row.pk)
