"""Dead letters: the list, the page of each with its cause, and replaying with edited arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import pluralize
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.http import urlencode

from django_jobs.admin.actions import LetterForm, ResolvingAdmin
from django_jobs.admin.base import (
    DetailAdmin,
    away,
    badge,
    error_text,
    handler_cell,
    home_of,
    may_view_payload,
    moment_cell,
    place,
    two_lines,
    within,
)
from django_jobs.admin.bulk import BeginningAdmin
from django_jobs.admin.dead_letter_filters import (
    LONGEST_TEXT,
    RESOLUTIONS,
    GroupFilter,
    LetterList,
    ResolutionFilter,
    offered,
)
from django_jobs.admin.lists import MomentFilter
from django_jobs.admin.payloads import (
    editable,
    from_editor,
    meta_of,
    payload_of,
    verdict_of,
    why_it_died,
)
from django_jobs.exceptions import InvalidJob
from django_jobs.handlers.registry import registry
from django_jobs.models import FailedJob, Job, JobAttempt, JobResult
from django_jobs.operations.dead_letters import groups
from django_jobs.operations.replay import Edited, checked
from django_jobs.operations.search import FOUND_AT_MOST, TEXT_WINDOW, search
from django_jobs.wire import strict_json

if TYPE_CHECKING:
    from uuid import UUID

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.urls import URLPattern

    from django_jobs.operations.search import SearchResult


# The page of a dead letter.

ATTEMPTS_SHOWN = 50


def letter_context(request: HttpRequest, failed: FailedJob) -> dict[str, Any]:
    """The context of a dead letter's page, without what the user may not see."""
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
        "replay_of": _related_job(failed.replay_of, home_of(failed)),
        "replayed_as": _related_job(failed.replayed_as, home_of(failed)),
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
    """The URL of the list of open dead letters with the same error."""
    if not failed.fingerprint:
        return ""
    query = urlencode({"fingerprint": failed.fingerprint, **place(home_of(failed))})
    return f"{reverse('admin:django_jobs_failedjob_changelist')}?{query}"


def _related_job(job_id: UUID | None, alias: str) -> dict[str, str] | None:
    """The URL and the state of a job that this one replays, or is replayed as."""
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


# Replaying a dead letter with edited arguments.


class EditForm(LetterForm):
    """The arguments as JSON, and the reason."""

    field_order = ("payload", "reason")
    payload = forms.CharField(
        label="Arguments",
        strip=False,
        help_text="As JSON. Leave hidden values (••••) as they are to keep them.",
        widget=forms.Textarea(
            attrs={
                "rows": 14,
                "cols": 80,
                "class": "vLargeTextField dj-code",
                "spellcheck": "false",
            }
        ),
    )

    def __init__(self, failed: FailedJob, data: Any = None, **options: Any) -> None:
        super().__init__(data, **options)
        self.failed = failed

    def clean_payload(self) -> Edited:
        """Check the arguments with the handler; its error becomes that of the field."""
        try:
            edited = Edited(from_editor(self.cleaned_data["payload"]))
            checked(self.failed, edited)
        except (strict_json.NotStrictJson, InvalidJob) as problem:
            raise forms.ValidationError(str(problem)) from problem
        return edited


class EditingAdmin(ResolvingAdmin):
    """Adds the page for editing arguments, which requires three permissions."""

    def has_edit_permission(self, request: HttpRequest, obj: FailedJob | None = None) -> bool:
        may = request.user.has_perm("django_jobs.edit_payload")
        return may and may_view_payload(request.user) and self.has_replay_permission(request, obj)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.edit_view)
        return [
            path("<path:object_id>/edit/", view, name=f"{self.url_name}_edit"),
            *super().get_urls(),
        ]

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """GET shows the arguments, POST replays the dead letter with the new ones."""
        failed = self.get_object(request, unquote(object_id))
        allowed = self.has_view_permission(request, failed)
        if not (allowed and self.has_edit_permission(request, failed)):
            raise PermissionDenied
        if failed is None:
            return self.not_there(request, object_id)
        page = within(reverse(f"admin:{self.url_name}_change", args=[failed.pk]), home_of(failed))
        if failed.resolution or not verdict_of(failed).valid:
            messages.error(request, "Only what is open and can be verified can be edited.")
            return HttpResponseRedirect(page)
        data = request.POST if request.method == "POST" else None
        form = EditForm(failed, data, initial={"payload": editable(failed.body)})
        if form.is_valid():
            self.do(request, "replay", [self.subject_of(failed)], form.cleaned_data)
            return HttpResponseRedirect(page)
        handler = registry.get(failed.handler)
        context = {
            "title": "Edit and replay",
            "original": "Edit and replay",
            "doing": self.verbs["replay"],
            "button": "Replay with these arguments",
            "failed": failed,
            "form": form,
            "takes": handler.takes if handler else "",
            "back_url": page,
        }
        return self._page(request, "edit.html", context)


# The list.

GROUPS_SHOWN = 200
NOT_IN_LISTS = ("body", "traceback", "output", "meta", "signature")


@admin.register(FailedJob)
class FailedJobAdmin(DetailAdmin, BeginningAdmin, EditingAdmin):
    """The list of dead letters, which can be replayed and discarded."""

    detail_page = "failedjob/detail.html"
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
        GroupFilter,
        offered("queue"),
        offered("handler"),
        offered("reason"),
        ("failed_at", MomentFilter),
    )
    ordering = ("-failed_at", "-id")
    sortable_by = ("failed_at",)
    search_fields = ("job_id",)
    search_help_text = (
        "The id of a job, a trace id or the fingerprint of an error, or how one begins (ids from "
        "8 digits on). Whatever is no whole id is also looked for as text in the latest "
        f"{TEXT_WINDOW:,}."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[FailedJob]:
        letters: QuerySet[FailedJob] = super().get_queryset(request)
        match = request.resolver_match
        in_a_list = match is None or not str(match.url_name).endswith(("_change", "_edit"))
        return letters.defer(*NOT_IN_LISTS) if in_a_list else letters

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LetterList]:
        return LetterList

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.groups_view)
        return [path("groups/", view, name=f"{self.url_name}_groups"), *super().get_urls()]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = search_term.strip()[:LONGEST_TEXT]
        if not text:
            return queryset, False
        result = search(queryset, text, payloads=may_view_payload(request.user))
        request._dj_search = result  # type: ignore[attr-defined]  # noqa: SLF001 - ours, for this request
        return queryset.filter(result.wanted), False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        answer = super().changelist_view(request, extra_context)
        if isinstance(answer, TemplateResponse) and answer.context_data is not None:
            result = getattr(request, "_dj_search", None)
            answer.context_data |= {
                "searched": "" if result is None else _searched(result, request),
                "narrowed": request.GET.urlencode(),
                "here": urlencode(place(self._alias(request))),
                "may": self._may(request),
            }
        return answer

    def groups_view(self, request: HttpRequest) -> HttpResponse:
        """List the groups of dead letters with the same error."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        resolved = request.GET.get("resolution") == "all"
        largest = groups(limit=GROUPS_SHOWN + 1, resolved=resolved, using=self._alias(request))
        context = {
            "title": "Error groups",
            "original": "Error groups",
            "groups": [
                {
                    "of": group,
                    "error": error_text(group.error_type, group.error_message),
                    "first": away(group.first_seen),
                    "last": away(group.last_seen),
                }
                for group in largest[:GROUPS_SHOWN]
            ],
            "more": len(largest) > GROUPS_SHOWN,
            "resolved": resolved,
            "may": self._may(request),
        }
        return self._page(request, "groups.html", context)

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
    def replay_selected(self, request: HttpRequest, letters: QuerySet[FailedJob]) -> HttpResponse:
        return self.ask_about_selected(request, "replay", letters)

    @admin.action(description="Discard selected dead letters", permissions=["discard"])
    def discard_selected(self, request: HttpRequest, letters: QuerySet[FailedJob]) -> HttpResponse:
        return self.ask_about_selected(request, "discard", letters)

    def _may(self, request: HttpRequest) -> dict[str, bool]:
        return {verb: self.may(request, verb) for verb in self.verbs}

    def detail(self, request: HttpRequest, failed: FailedJob) -> dict[str, Any]:
        """One dead letter."""
        context = letter_context(request, failed)
        verdict, is_open = context["verdict"], not failed.resolution
        may_replay = is_open and self.may(request, "replay", failed)
        return {
            **context,
            "here": urlencode(place(self._alias(request))),
            "original": failed.name or failed.handler,
            "title": failed.name or failed.handler,
            "may_replay": may_replay and verdict.replayable,
            "may_edit": may_replay and verdict.valid and self.has_edit_permission(request, failed),
            "may_discard": is_open and self.may(request, "discard", failed),
        }


def _searched(result: SearchResult, request: HttpRequest) -> str:
    """What a search covered, as a sentence."""
    sentence = "Found by name: an id, a trace id or a fingerprint."
    if result.by_text:
        where = "errors and handlers"
        if may_view_payload(request.user):
            where = "errors, handlers and payloads as they are shown"
        window = f"the latest {TEXT_WINDOW:,} of this list" if result.since else "all of this list"
        names = f"{result.named:,} found by name" if result.named else "Nothing has that name"
        also = (
            "; it was also looked for as text" if result.named else ", so it was looked for as text"
        )
        sentence = f"{names}{also} in the {where} of {window}."
    return f"{sentence} Only the first {FOUND_AT_MOST:,} are shown." if result.more else sentence
