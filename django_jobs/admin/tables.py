"""The other tables, to look at: live jobs, results, attempts, events, queue controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from django_jobs.admin.base import (
    ReadOnlyAdmin,
    age_of,
    may_view_payload,
    moment_of,
    recent_values,
)
from django_jobs.admin.presentation import laid_out, meta_of, payload_of, shortened
from django_jobs.ids import parse_id
from django_jobs.models import Job, JobAttempt, JobResult, OperatorEvent, QueueControl
from django_jobs.wire import strict_json

if TYPE_CHECKING:
    from datetime import datetime

    from django.db.models import QuerySet
    from django.http import HttpRequest

PAYLOAD_FIELDS = ("payload", "meta_data", "shown_value")


class OfAJob(ReadOnlyAdmin):
    """Rows that are found by the id of their job."""

    id_field = "job_id"
    search_help_text = "The id of a job, or a trace id."
    trace_field: str | None = "trace_id"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        for word in search_term.split():
            if job_id := parse_id(word):
                queryset = queryset.filter(**{self.id_field: job_id})
            elif self.trace_field:
                queryset = queryset.filter(**{self.trace_field: word})
            else:
                queryset = queryset.none()
        return queryset, False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        fields = super().get_fields(request, obj)
        if may_view_payload(request.user):
            return fields
        return tuple(name for name in fields if name not in PAYLOAD_FIELDS)

    @admin.display(description="payload")
    def payload(self, row: Any) -> str:
        return payload_of(row.body or "") or "–"

    @admin.display(description="meta")
    def meta_data(self, row: Any) -> str:
        return meta_of(row.body or "") or "–"

    @admin.display(description="error")
    def error(self, row: Any) -> str:
        kind = row.error_type.rpartition(".")[2]
        return ": ".join(filter(None, (kind, shortened(row.error_message)))) or "–"


@admin.register(Job)
class JobAdmin(OfAJob):
    """Jobs that have not ended."""

    id_field = "pk"
    list_display = (
        "handler",
        "queue",
        "shown_state",
        "shown_priority",
        "due_at",
        "attempts",
        "crashes",
        "worker",
        "age",
    )
    list_filter = ("state", recent_values("queue"), recent_values("handler"))
    ordering = ("-id",)
    search_fields = ("id",)
    hidden = ("body", "signature", "lease_token", "meta", "rank", "due", "lease_expires", "expires")
    derived = (
        "shown_priority",
        "due_at",
        "leased_until",
        "expires_at",
        "payload",
        "meta_data",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        return super().get_queryset(request).defer("meta")

    @admin.display(description="state")
    def shown_state(self, job: Job) -> str:
        suspect = " (suspect)" if job.suspect else ""
        return f"{job.get_state_display()}{suspect}"

    @admin.display(description="priority")
    def shown_priority(self, job: Job) -> int:
        return job.priority

    @admin.display(description="due")
    def due_at(self, job: Job) -> datetime | None:
        return moment_of(job.due)

    @admin.display(description="leased until")
    def leased_until(self, job: Job) -> datetime | None:
        return moment_of(job.lease_expires)

    @admin.display(description="expires")
    def expires_at(self, job: Job) -> datetime | None:
        return moment_of(job.expires)

    @admin.display(description="age")
    def age(self, job: Job) -> str:
        return age_of(job.created_at)


@admin.register(JobResult)
class JobResultAdmin(OfAJob):
    """How jobs ended that are not dead."""

    list_display = ("handler", "queue", "status", "attempts", "finished_at", "took", "worker")
    list_filter = ("status", recent_values("queue"), recent_values("handler"))
    ordering = ("-job_id",)
    search_fields = ("job_id",)
    hidden = ("body", "value", "expires")
    derived = ("took", "kept_until", "shown_value", "payload", "meta_data")

    @admin.display(description="took")
    def took(self, result: JobResult) -> str:
        if result.started_at is None or result.finished_at is None:
            return "–"
        return f"{(result.finished_at - result.started_at).total_seconds():.3f} s"

    @admin.display(description="kept until")
    def kept_until(self, result: JobResult) -> datetime | None:
        return moment_of(result.expires)

    @admin.display(description="value")
    def shown_value(self, result: JobResult) -> str:
        try:
            return laid_out(strict_json.loads(result.value))
        except strict_json.NotStrictJson:
            return "–"


@admin.register(JobAttempt)
class JobAttemptAdmin(OfAJob):
    """Runs that did not succeed."""

    trace_field = None
    search_help_text = "The id of a job."
    list_display = ("job_id", "number", "outcome", "error", "finished_at", "worker")
    list_filter = (recent_values("outcome"), "finished_at")
    ordering = ("-finished_at", "-id")
    search_fields = ("job_id",)


@admin.register(OperatorEvent)
class OperatorEventAdmin(ReadOnlyAdmin):
    """What somebody did, and why."""

    list_display = ("at", "actor", "action", "subject", "queue", "backend", "shown_reason")
    list_filter = (recent_values("action"), recent_values("actor"), "at")
    ordering = ("-at", "-id")

    @admin.display(description="reason")
    def shown_reason(self, event: OperatorEvent) -> str:
        return shortened(event.reason) or "–"


@admin.register(QueueControl)
class QueueControlAdmin(ReadOnlyAdmin):
    """What operators set for queues."""

    list_display = (
        "queue",
        "backend",
        "paused",
        "shown_reason",
        "rate_limit",
        "concurrency",
        "changed_by",
        "changed_at",
    )
    ordering = ("queue", "backend")

    @admin.display(description="reason")
    def shown_reason(self, control: QueueControl) -> str:
        return shortened(control.reason) or "–"
