"""The dead-letter page: what died, why, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpResponseNotAllowed
from django.template.defaultfilters import pluralize
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.timesince import timesince

from django_jobs.admin.base import may_view_payload, recent_values
from django_jobs.admin.cells import badge, error_text, handler_cell, moment_cell, two_lines
from django_jobs.admin.presentation import meta_of, payload_of, verdict_of, visible, why_it_died
from django_jobs.admin.resolving import ResolvingAdmin
from django_jobs.ids import parse_id
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from django_jobs.operations import jobs_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.admin.views.main import ChangeList
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

ATTEMPTS_SHOWN = 50
NOT_IN_LISTS = ("body", "traceback", "output", "meta", "signature")
RESOLUTIONS = {"": "open", "replayed": "replayed", "discarded": "discarded"}
_ID_DIGITS = 32
_FINGERPRINT_DIGITS = 64
_SHORTEST_PREFIX = 8


class ResolutionFilter(admin.SimpleListFilter):
    """Open ones unless said otherwise; a search looks among all of them."""

    title = "resolution"
    parameter_name = "resolution"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        self.default = "all" if request.GET.get("q") else "open"
        return [(word, word.capitalize()) for word in (*RESOLUTIONS.values(), "all")]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        chosen = self.value() or self.default
        for word, label in self.lookup_choices:
            yield {
                "selected": word == chosen,
                "query_string": changelist.get_query_string({self.parameter_name: word}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[FailedJob]) -> QuerySet[FailedJob]:
        chosen = self.value() or self.default
        if chosen == "all":
            return queryset
        return queryset.filter(resolution="" if chosen == "open" else chosen)


@admin.register(FailedJob)
class FailedJobAdmin(ResolvingAdmin):
    """Read-only but for two verbs."""

    actions = ("replay_selected", "discard_selected")
    list_display = (
        "shown_handler",
        "queue",
        "error",
        "failed",
        "shown_resolution",
    )
    list_filter = (
        ResolutionFilter,
        recent_values("queue"),
        recent_values("handler"),
        recent_values("reason"),
        "failed_at",
    )
    ordering = ("-failed_at", "-id")
    sortable_by = ("failed_at",)
    search_fields = ("job_id",)
    search_help_text = (
        "The id of a job (or its first 8 digits and more), a trace id, or the "
        "fingerprint of an error; the last two may be cut short."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[FailedJob]:
        found: QuerySet[FailedJob] = super().get_queryset(request)
        match = request.resolver_match
        in_a_list = match is None or not str(match.url_name).endswith("_change")
        return found.defer(*NOT_IN_LISTS) if in_a_list else found

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        for word in search_term.split():
            queryset = queryset.filter(_wanted(word))
        return queryset, False

    @admin.display(description="handler")
    def shown_handler(self, failed: FailedJob) -> str:
        return handler_cell(failed.handler)

    @admin.display(description="error and reason")
    def error(self, failed: FailedJob) -> str:
        runs = f"{failed.attempts} attempt{pluralize(failed.attempts)}"
        crashes = f", {failed.crashes} crash{pluralize(failed.crashes, 'es')}"
        below = f"{failed.reason} · {runs}{crashes if failed.crashes else ''}"
        return two_lines(error_text(failed.error_type, failed.error_message), below)

    @admin.display(description="failed", ordering="failed_at")
    def failed(self, failed: FailedJob) -> str:
        return moment_cell(failed.failed_at)

    @admin.display(description="resolution")
    def shown_resolution(self, failed: FailedJob) -> str:
        return badge(RESOLUTIONS.get(failed.resolution, failed.resolution))

    @admin.action(description="Replay selected dead letters", permissions=["replay"])
    def replay_selected(
        self, request: HttpRequest, letters: QuerySet[FailedJob]
    ) -> HttpResponse | None:
        return self.ask(request, "replay", letters, request.GET.urlencode())

    @admin.action(description="Discard selected dead letters", permissions=["discard"])
    def discard_selected(
        self, request: HttpRequest, letters: QuerySet[FailedJob]
    ) -> HttpResponse | None:
        return self.ask(request, "discard", letters, request.GET.urlencode())

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One dead letter, to be read from the top: why, what it was given, what happened."""
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        failed = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, failed):
            raise PermissionDenied
        if failed is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return] # not in the stubs
        context = {
            **self.admin_site.each_context(request),
            **self._detail(request, failed),
            "opts": self.opts,
            "media": self.media,
            "has_view_permission": True,
            "original": failed.name or failed.handler,
            "title": failed.name or failed.handler,
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_jobs/failedjob/detail.html", context)

    def _detail(self, request: HttpRequest, failed: FailedJob) -> dict[str, Any]:
        verdict = verdict_of(failed)
        is_open = not failed.resolution
        may_view = may_view_payload(request.user)
        attempts = JobAttempt.objects.using(jobs_database()).filter(job_id=failed.job_id)
        return {
            "failed": failed,
            "why": why_it_died(failed.reason),
            "verdict": verdict,
            "resolution": RESOLUTIONS.get(failed.resolution, failed.resolution),
            "may_view_payload": may_view,
            "payload": payload_of(failed.body) if may_view else None,
            "meta": meta_of(failed.body) if may_view else "",
            "error_type": failed.error_type.removeprefix("builtins."),
            "message": visible(failed.error_message),
            "traceback": visible(failed.traceback),
            "output": visible(failed.output),
            "attempts": attempts.order_by("number", "pk")[:ATTEMPTS_SHOWN],
            "age": timesince(failed.failed_at, depth=1),
            "may_replay": is_open and verdict.replayable and self.has_replay_permission(request),
            "may_discard": is_open and self.has_discard_permission(request),
            "replay_of": _whereabouts(failed.replay_of),
            "replayed_as": _whereabouts(failed.replayed_as),
            "same_error": self._same_error(failed),
        }

    def _same_error(self, failed: FailedJob) -> str:
        """Where to see all open dead letters with this error."""
        if not failed.fingerprint:
            return ""
        return (
            f"{reverse('admin:django_jobs_failedjob_changelist')}?fingerprint={failed.fingerprint}"
        )


def _wanted(word: str) -> Q:
    """Dead letters that a word names: in full, which is quick, or by how something begins."""
    if job_id := parse_id(word):
        return Q(job_id=job_id) | Q(trace_id=word)
    if len(word) == _FINGERPRINT_DIGITS:
        return Q(fingerprint=word) | Q(trace_id=word)
    if word.isdecimal() and len(word) < _SHORTEST_PREFIX:
        return Q(pk=int(word)) | Q(trace_id=word)
    wanted = Q(trace_id__startswith=word) | Q(fingerprint__startswith=word)
    digits = word.replace("-", "").lower()
    if not _SHORTEST_PREFIX <= len(digits) < _ID_DIGITS or set(digits) - set("0123456789abcdef"):
        return wanted
    first, last = UUID(digits.ljust(_ID_DIGITS, "0")), UUID(digits.ljust(_ID_DIGITS, "f"))
    return wanted | Q(job_id__gte=first, job_id__lte=last)


def _whereabouts(job_id: UUID | None) -> dict[str, str] | None:
    """Where another job of the same lineage can be looked at, and how it stands."""
    if job_id is None:
        return None
    alias = jobs_database()
    if live := Job.objects.using(alias).filter(pk=job_id).first():
        url = reverse("admin:django_jobs_job_change", args=[live.pk])
        return {"id": str(job_id), "url": url, "state": live.get_state_display()}
    if result := JobResult.objects.using(alias).filter(pk=job_id).first():
        url = reverse("admin:django_jobs_jobresult_change", args=[result.pk])
        return {"id": str(job_id), "url": url, "state": result.status}
    if dead := FailedJob.objects.using(alias).filter(job_id=job_id).first():
        url = reverse("admin:django_jobs_failedjob_change", args=[dead.pk])
        return {"id": str(job_id), "url": url, "state": "dead"}
    return {"id": str(job_id), "url": "", "state": "ended, and nothing of it was kept"}
