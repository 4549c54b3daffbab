"""Jobs of a broker, which are in no table, as unsaved rows for the admin's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.urls import path, reverse

from django_jobs.admin.base import ReadOnlyAdmin, away, handler_cell, moment_of
from django_jobs.ids import parse_id
from django_jobs.models import Job, JobResult, JobState
from django_jobs.operations import brokers

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    from django_jobs.backends.values import Glimpse

SHOWN = 200
ENDED_WELL = frozenset({"succeeded", "skipped", "cancelled"})
_STATES = {str(state.label): int(state) for state in JobState}


def job_of(backend: str, seen: Glimpse) -> Job:
    """A job of a broker as a row that is never saved."""
    index, header = seen.message.index, seen.message.header
    return Job(
        id=UUID(seen.id),
        backend=backend,
        queue=seen.queue,
        handler=str(index.get("handler") or ""),
        name=str(index.get("name") or ""),
        rank=int(index.get("rank") or 0),
        state=_STATES.get(seen.state, int(JobState.READY)),
        due=seen.due,
        body=seen.message.body,
        attempts=header.attempts,
        deliveries=header.deliveries,
        crashes=header.crashes,
        suspect=bool(seen.extra.get("suspect")),
        worker=str(seen.extra.get("worker") or ""),
        leased_at=seen.extra.get("leased_at") or None,
        lease_expires=seen.lease_expires,
        trace_id=index.get("trace_id"),
    )


def live_job(job_id: str) -> Job | None:
    """The live job with this id, if a broker has it."""
    seen = brokers.find(job_id)
    return None if seen is None else job_of(*seen)


def stored_result(job_id: str) -> JobResult | None:
    """The result of a job that a broker keeps, as a row that is never saved."""
    answer = brokers.account_of(job_id)
    if answer is None or answer[1].status not in ENDED_WELL:
        return None  # a dead job has a dead letter
    backend, account = answer
    return JobResult(
        job_id=UUID(account.id),
        backend=backend,
        queue=account.queue,
        handler=account.handler,
        status=account.status,
        value=account.value_json,
        output=account.output,
        attempts=account.failed_attempts,
        worker=account.worker,
        started_at=moment_of(account.started_at),
        finished_at=moment_of(account.finished_at),
        body=account.body,
    )


class BrokerJobsAdmin(ReadOnlyAdmin):
    """Adds the page that lists the jobs of one queue of a broker."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.broker_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_broker"
        return [path("broker/", view, name=name), *super().get_urls()]

    def broker_view(self, request: HttpRequest) -> HttpResponse:
        """List the first jobs of a queue of a broker."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        backend, queue = (request.GET.get(name, "") for name in ("backend", "queue"))
        state = request.GET.get("state", "")
        answer = brokers.peeked(backend, queue, SHOWN)
        glimpses = [] if isinstance(answer, str) else answer
        context = {
            "title": f"Jobs in {queue} on {backend}",
            "original": f"{queue} on {backend}",
            "problem": answer if isinstance(answer, str) else "",
            # A message that was put there by hand may have no id, and then no page.
            "jobs": [
                self._row(job_of(backend, glimpse))
                for glimpse in glimpses
                if state in {"", glimpse.state} and parse_id(glimpse.id)
            ],
            "state": state,
            "whole": f"?{self._without_state(request)}",
            "shown": SHOWN if len(glimpses) >= SHOWN else 0,
        }
        return self.page_of(request, "job/broker.html", context)

    def _without_state(self, request: HttpRequest) -> str:
        narrowed = request.GET.copy()
        narrowed.pop("state", None)
        return narrowed.urlencode()

    def _row(self, job: Job) -> dict[str, Any]:
        due = moment_of(job.due)
        return {
            "job": job,
            "state": JobState(job.state).label,
            "handler": handler_cell(job.handler),
            "due": "–" if due is None else away(due),
            "url": reverse("admin:django_jobs_job_change", args=[job.pk]),
        }
