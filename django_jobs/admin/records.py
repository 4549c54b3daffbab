"""The records of ended jobs: results, failed attempts, and operator events."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin
from django.http import HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.http import urlencode

from django_jobs.admin import broker_jobs
from django_jobs.admin.base import (
    PARAMETER,
    ReadOnlyAdmin,
    all_databases,
    error_text,
    handler_cell,
    in_full,
    may_view_payload,
    moment_cell,
    moment_of,
    recent_values,
)
from django_jobs.admin.lists import MomentFilter
from django_jobs.admin.payloads import (
    laid_out,
    meta_of,
    payload_of,
    shortened,
)
from django_jobs.backends.home import jobs_database
from django_jobs.backends.values import reason_of, why_not_kept
from django_jobs.ids import made_at, parse_id
from django_jobs.models import JobAttempt, JobResult, OperatorEvent
from django_jobs.texts import printable
from django_jobs.wire import strict_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

EVENTS_SHOWN = 20
TRACES_AMONG = 100_000
A_MINUTE = timedelta(minutes=1)
PAYLOAD_FIELDS = ("payload", "meta_data", "shown_value")


class OfAJob(ReadOnlyAdmin):
    """A table that can be searched for the id of a job."""

    in_each_database = True
    id_field = "job_id"
    search_help_text = f"The id of a job, or a trace id among the latest {TRACES_AMONG:,}."
    trace_field: str | None = "trace_id"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        for word in search_term.split():
            if job_id := parse_id(word):
                queryset = queryset.filter(**{self.id_field: job_id})
            elif self.trace_field:
                queryset = self._latest(queryset).filter(**{self.trace_field: word})
            else:
                queryset = queryset.none()
        return queryset, False

    def _latest(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of the latest jobs by id, for traces have no index; ids rise with time."""
        ids = self.model._default_manager.using(rows.db).order_by(f"-{self.id_field}")
        before = ids.values_list(self.id_field, flat=True)[TRACES_AMONG : TRACES_AMONG + 1]
        for last in before:
            rows = rows.filter(**{f"{self.id_field}__gt": last})
        return rows

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
        return error_text(row.error_type, row.error_message)

    @admin.display(description="handler")
    def shown_handler(self, row: Any) -> str:
        return handler_cell(row.handler)

    @admin.display(description="finished")
    def finished(self, row: Any) -> str:
        return moment_cell(row.finished_at)


@admin.register(JobResult)
class JobResultAdmin(OfAJob):
    """Results of jobs that succeeded, were skipped or were cancelled."""

    as_cards = True
    list_display = ("shown_handler", "queue", "status", "attempts", "finished", "took", "worker")
    list_filter = (recent_values("status"), recent_values("queue"), recent_values("handler"))
    ordering = ("-job_id",)
    search_fields = ("job_id",)
    hidden = ("body", "value", "expires", "enqueued_at", "started_at", "finished_at")
    derived = (
        "reason",
        "enqueued_in_full",
        "started_in_full",
        "finished_in_full",
        "took",
        "kept_until",
        "shown_value",
        "payload",
        "meta_data",
        "by_operators",
    )

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A search for a result that a broker keeps redirects to its page; no list has it."""
        key = parse_id(request.GET.get("q", "").strip())
        if key and self.has_view_permission(request) and with_a_broker(key):
            page = reverse("admin:django_jobs_jobresult_change", args=[key])
            return HttpResponseRedirect(page)
        return super().changelist_view(request, extra_context)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> JobResult | None:
        row: JobResult | None = super().get_object(request, object_id, from_field)
        key = parse_id(object_id)
        return row or (broker_jobs.stored_result(key) if key else None)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        fields = super().get_fields(request, obj)
        if request.user.has_perm("django_jobs.view_operatorevent"):
            return fields
        return tuple(name for name in fields if name != "by_operators")

    @admin.display(description="operators")
    def by_operators(self, result: JobResult) -> str:
        """The operator events about a job: the history of its row is gone together with the row."""
        rows = [
            (
                reverse("admin:django_jobs_operatorevent_change", args=[event.pk]) + query,
                printable(event.action),
                printable(event.actor) or "an unknown user",
                in_full(event.at),
                shortened(event.reason) or "no reason given",
            )
            for event, query in _events_about(result)
        ]
        return format_html_join("", '<a href="{}">{}</a> by {}, {}: {}<br>', rows) or "–"

    @admin.display(description="reason")
    def reason(self, result: JobResult) -> str:
        """Why the job was cancelled or skipped."""
        return printable(reason_of(result.status, result.output)) or "–"

    @admin.display(description="enqueued at")
    def enqueued_in_full(self, result: JobResult) -> str:
        return in_full(result.enqueued_at)

    @admin.display(description="started at")
    def started_in_full(self, result: JobResult) -> str:
        return in_full(result.started_at)

    @admin.display(description="finished at")
    def finished_in_full(self, result: JobResult) -> str:
        return in_full(result.finished_at)

    @admin.display(description="took")
    def took(self, result: JobResult) -> str:
        if result.started_at is None or result.finished_at is None:
            return "–"
        return f"{(result.finished_at - result.started_at).total_seconds():.3f} s"

    @admin.display(description="kept until")
    def kept_until(self, result: JobResult) -> str:
        return in_full(moment_of(result.expires))

    @admin.display(description="value")
    def shown_value(self, result: JobResult) -> str:
        if why := why_not_kept(result.value):
            return printable(f"not kept: {why}")
        try:
            return laid_out(strict_json.loads(result.value))
        except strict_json.NotStrictJson:
            return "–"


def is_kept(job_id: str) -> bool:
    """Whether a result of a job is in a database."""
    matches = (JobResult.objects.using(alias).filter(pk=job_id) for alias in all_databases())
    return any(rows.exists() for rows in matches)


def with_a_broker(job_id: str) -> bool:
    """Whether only a broker has the result of a job."""
    return not is_kept(job_id) and broker_jobs.stored_result(job_id) is not None


def _events_about(result: JobResult) -> Iterator[tuple[OperatorEvent, str]]:
    """Operator events about a job, and the query of their URLs.

    Restricted to the lifetime of the job: the time of events has an index, their subject has none.
    """
    home = result._state.db or jobs_database()  # noqa: SLF001 - where it was read
    events = OperatorEvent.objects.using(home).filter(subject=str(result.pk))
    if result.finished_at is not None:
        begin = result.enqueued_at or result.finished_at - timedelta(days=1)
        events = events.filter(at__lte=result.finished_at + A_MINUTE)
    else:  # a broker stores no times for a job that was cancelled before it ran
        made = moment_of(made_at(UUID(str(result.pk))))
        begin = made or timezone.now() - timedelta(days=1)
    events = events.filter(at__gte=begin - A_MINUTE)
    query = "?" + urlencode({"_changelist_filters": urlencode({PARAMETER: home})})
    for event in events.order_by("at", "pk")[:EVENTS_SHOWN]:
        yield event, query


@admin.register(JobAttempt)
class JobAttemptAdmin(OfAJob):
    """Attempts that failed."""

    as_cards = True
    trace_field = None
    search_help_text = "The id of a job."
    list_display = ("job_id", "number", "outcome", "error", "finished", "worker")
    list_filter = (recent_values("outcome"), ("finished_at", MomentFilter))
    ordering = ("-finished_at", "-id")
    search_fields = ("job_id",)


@admin.register(OperatorEvent)
class OperatorEventAdmin(ReadOnlyAdmin):
    """Actions of operators, with their reasons."""

    as_cards = True
    in_each_database = True
    list_display = ("when", "actor", "action", "subject", "queue", "shown_reason")
    list_filter = (recent_values("action"), recent_values("actor"), ("at", MomentFilter))
    ordering = ("-at", "-id")

    @admin.display(description="at")
    def when(self, event: OperatorEvent) -> str:
        return moment_cell(event.at)

    @admin.display(description="reason")
    def shown_reason(self, event: OperatorEvent) -> str:
        return shortened(event.reason) or "–"
