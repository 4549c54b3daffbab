"""One dead letter, to be read from the top: why, what it was given, what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.http import urlencode

from django_jobs.admin.base import may_view_payload
from django_jobs.admin.cells import away
from django_jobs.admin.databases import home_of, place, within
from django_jobs.admin.dead_letter_filters import RESOLUTIONS
from django_jobs.admin.presentation import meta_of, payload_of, verdict_of, why_it_died
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult

if TYPE_CHECKING:
    from uuid import UUID

    from django.http import HttpRequest

ATTEMPTS_SHOWN = 50


def told(request: HttpRequest, failed: FailedJob) -> dict[str, Any]:
    """What its page shows of a dead letter to somebody."""
    may_view = may_view_payload(request.user)
    attempts = JobAttempt.objects.using(home_of(failed)).filter(job_id=failed.job_id)
    return {
        "failed": failed,
        "why": why_it_died(failed.reason),
        "verdict": verdict_of(failed),
        "resolution": RESOLUTIONS.get(failed.resolution, failed.resolution),
        "may_view_payload": may_view,
        "payload": payload_of(failed.body) if may_view else None,
        "meta": meta_of(failed.body) if may_view else "",
        "error_type": failed.error_type.removeprefix("builtins."),
        "message": failed.error_message,
        "traceback": failed.traceback,
        "output": failed.output,
        "attempts": [_attempt(row) for row in attempts.order_by("-number", "-pk")[:ATTEMPTS_SHOWN]],
        "age": away(failed.failed_at),
        "replay_of": _whereabouts(failed.replay_of, home_of(failed)),
        "replayed_as": _whereabouts(failed.replayed_as, home_of(failed)),
        "same_error": _same_error(failed),
    }


def _attempt(row: JobAttempt) -> dict[str, Any]:
    return {
        "number": row.number,
        "outcome": row.outcome,
        "began": row.started_at,
        "took": f"{max((row.finished_at - row.started_at).total_seconds(), 0):.3g} s",
        "error": ": ".join(filter(None, (row.error_type, row.error_message))),
        "traceback": row.traceback,
        "output": row.output,
        "worker": row.worker,
    }


def _same_error(failed: FailedJob) -> str:
    """Where to see all open dead letters with this error."""
    if not failed.fingerprint:
        return ""
    told = urlencode({"fingerprint": failed.fingerprint, **place(home_of(failed))})
    return f"{reverse('admin:django_jobs_failedjob_changelist')}?{told}"


def _whereabouts(job_id: UUID | None, alias: str) -> dict[str, str] | None:
    """Where another job of the same lineage can be looked at, and how it stands."""
    if job_id is None:
        return None
    if live := Job.objects.using(alias).filter(pk=job_id).first():
        url = reverse("admin:django_jobs_job_change", args=[live.pk])
        return {"id": str(job_id), "url": url, "state": live.get_state_display()}
    if result := JobResult.objects.using(alias).filter(pk=job_id).first():
        url = reverse("admin:django_jobs_jobresult_change", args=[result.pk])
        return {"id": str(job_id), "url": url, "state": result.status}
    if dead := FailedJob.objects.using(alias).filter(job_id=job_id).first():
        url = within(reverse("admin:django_jobs_failedjob_change", args=[dead.pk]), alias)
        return {"id": str(job_id), "url": url, "state": "dead"}
    return {"id": str(job_id), "url": "", "state": "ended, and nothing of it was kept"}
