"""The dead-letter page: what died, why, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.template.defaultfilters import pluralize
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.http import urlencode

from django_jobs.admin import dead_letter_page
from django_jobs.admin.base import may_view_payload
from django_jobs.admin.cells import away, badge, error_text, handler_cell, moment_cell, two_lines
from django_jobs.admin.databases import place
from django_jobs.admin.dead_letter_filters import (
    LONGEST_TEXT,
    RESOLUTIONS,
    GroupFilter,
    LetterList,
    ResolutionFilter,
    offered,
)
from django_jobs.admin.editing import EditingAdmin
from django_jobs.admin.lists import MomentFilter
from django_jobs.admin.run_beginnings import BeginningAdmin
from django_jobs.models import FailedJob
from django_jobs.operations.dead_letters import groups
from django_jobs.operations.search import FOUND_AT_MOST, TEXT_WINDOW, search

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.urls import URLPattern

    from django_jobs.operations.search import Found

GROUPS_SHOWN = 200
NOT_IN_LISTS = ("body", "traceback", "output", "meta", "signature")


@admin.register(FailedJob)
class FailedJobAdmin(BeginningAdmin, EditingAdmin):
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
        found: QuerySet[FailedJob] = super().get_queryset(request)
        match = request.resolver_match
        in_a_list = match is None or not str(match.url_name).endswith(("_change", "_edit"))
        return found.defer(*NOT_IN_LISTS) if in_a_list else found

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LetterList]:
        return LetterList

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.groups_view)
        return [path("groups/", view, name=f"{self._url}_groups"), *super().get_urls()]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = search_term.strip()[:LONGEST_TEXT]
        if not text:
            return queryset, False
        found = search(queryset, text, payloads=may_view_payload(request.user))
        request._dj_found = found  # type: ignore[attr-defined]  # noqa: SLF001 - ours, for this request
        return queryset.filter(found.wanted), False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        answer = super().changelist_view(request, extra_context)
        if isinstance(answer, TemplateResponse) and answer.context_data is not None:
            found = getattr(request, "_dj_found", None)
            answer.context_data |= {
                "searched": "" if found is None else _searched(found, request),
                "narrowed": request.GET.urlencode(),
                "here": urlencode(place(self._alias(request))),
                "may": {verb: self._may(request, verb) for verb in ("replay", "discard")},
            }
        return answer

    def groups_view(self, request: HttpRequest) -> HttpResponse:
        """Which errors there are, and how often."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        resolved = request.GET.get("resolution") == "all"
        found = groups(limit=GROUPS_SHOWN + 1, resolved=resolved, using=self._alias(request))
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
                for group in found[:GROUPS_SHOWN]
            ],
            "more": len(found) > GROUPS_SHOWN,
            "resolved": resolved,
            "may": {verb: self._may(request, verb) for verb in ("replay", "discard")},
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
    def replay_selected(
        self, request: HttpRequest, letters: QuerySet[FailedJob]
    ) -> HttpResponse | None:
        return self.ask_about_selected(request, "replay", letters)

    @admin.action(description="Discard selected dead letters", permissions=["discard"])
    def discard_selected(
        self, request: HttpRequest, letters: QuerySet[FailedJob]
    ) -> HttpResponse | None:
        return self.ask_about_selected(request, "discard", letters)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One dead letter."""
        failed = self.looked_at(request, object_id)
        if isinstance(failed, HttpResponse):
            return failed
        context = dead_letter_page.told(request, failed)
        verdict, is_open = context["verdict"], not failed.resolution
        may_replay = is_open and self._may(request, "replay", failed)
        context |= {
            "original": failed.name or failed.handler,
            "title": failed.name or failed.handler,
            "may_replay": may_replay and verdict.replayable,
            "may_edit": may_replay and verdict.valid and self.has_edit_permission(request, failed),
            "may_discard": is_open and self._may(request, "discard", failed),
            **(extra_context or {}),
        }
        return self._page(request, "detail.html", context)


def _searched(found: Found, request: HttpRequest) -> str:
    """What a search looked at, in words."""
    told = "Found by name: an id, a trace id or a fingerprint."
    if found.by_text:
        where = "errors and handlers"
        if may_view_payload(request.user):
            where = "errors, handlers and payloads as they are shown"
        window = f"the latest {TEXT_WINDOW:,} of this list" if found.since else "all of this list"
        names = f"{found.named:,} found by name" if found.named else "Nothing has that name"
        also = (
            "; it was also looked for as text" if found.named else ", so it was looked for as text"
        )
        told = f"{names}{also} in the {where} of {window}."
    return f"{told} Only the first {FOUND_AT_MOST:,} are shown." if found.more else told
