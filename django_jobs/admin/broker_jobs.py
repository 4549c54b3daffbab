"""The jobs of a broker, which are in no table: found, listed, and looked at as others are."""

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
    """A row, never to be saved, of what a broker shows."""
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


def found(job_id: str) -> Job | None:
    """The live job of this id, if a broker has it."""
    seen = brokers.find(job_id)
    return None if seen is None else job_of(*seen)


def result(job_id: str) -> JobResult | None:
    """How a job ended, where a broker keeps that: a row, never to be saved."""
    told = brokers.account_of(job_id)
    if told is None or told[1].status not in ENDED_WELL:
        return None  # of the dead there are dead letters
    backend, account = told
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
    """The page that lists what a broker holds of one queue."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.broker_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_broker"
        return [path("broker/", view, name=name), *super().get_urls()]

    def broker_view(self, request: HttpRequest) -> HttpResponse:
        """The first jobs of a queue, as its broker tells of them."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        backend, queue = (request.GET.get(name, "") for name in ("backend", "queue"))
        state = request.GET.get("state", "")
        told = brokers.peeked(backend, queue, SHOWN)
        seen = [] if isinstance(told, str) else told
        context = {
            "title": f"Jobs in {queue} on {backend}",
            "original": f"{queue} on {backend}",
            "problem": told if isinstance(told, str) else "",
            # What somebody put there by hand may have no id to ask about it by.
            "jobs": [
                self._row(job_of(backend, one))
                for one in seen
                if state in {"", one.state} and parse_id(one.id)
            ],
            "state": state,
            "whole": f"?{self._without_state(request)}",
            "shown": SHOWN if len(seen) >= SHOWN else 0,
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
