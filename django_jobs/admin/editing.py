"""Replaying a dead letter with other arguments than it died with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect
from django.urls import path, reverse

from django_jobs.admin.base import may_view_payload
from django_jobs.admin.databases import home_of, within
from django_jobs.admin.presentation import editable, from_editor, verdict_of
from django_jobs.admin.resolving import Log, ReasonForm, ResolvingAdmin, answer_of
from django_jobs.exceptions import InvalidJob
from django_jobs.handlers.registry import registry
from django_jobs.operations.replay import Edited, checked, replay
from django_jobs.wire import strict_json

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    from django_jobs.models import FailedJob


class EditForm(ReasonForm):
    """The arguments as JSON, and why."""

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
        """What the handler takes; anything else comes back with its complaint."""
        try:
            edited = Edited(from_editor(self.cleaned_data["payload"]))
            checked(self.failed, edited)
        except (strict_json.NotStrictJson, InvalidJob) as problem:
            raise forms.ValidationError(str(problem)) from problem
        return edited


class EditingAdmin(ResolvingAdmin):
    """Adds the page on which arguments are edited. It needs three permissions."""

    def has_edit_permission(self, request: HttpRequest, obj: FailedJob | None = None) -> bool:
        may = request.user.has_perm("django_jobs.edit_payload")
        return may and may_view_payload(request.user) and self.has_replay_permission(request, obj)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.edit_view)
        return [path("<path:object_id>/edit/", view, name=f"{self._url}_edit"), *super().get_urls()]

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """GET shows the arguments, POST replays the dead letter with those given."""
        failed = self.get_object(request, unquote(object_id))
        allowed = self.has_view_permission(request, failed)
        if not (allowed and self.has_edit_permission(request, failed)):
            raise PermissionDenied
        if failed is None:
            return self.not_there(request, object_id)
        page = within(reverse(f"admin:{self._url}_change", args=[failed.pk]), home_of(failed))
        if failed.resolution or not verdict_of(failed).valid:
            messages.error(request, "Only what is open and can be verified can be edited.")
            return HttpResponseRedirect(page)
        given = request.POST if request.method == "POST" else None
        form = EditForm(failed, given, initial={"payload": editable(failed.body)})
        if form.is_valid():
            self._replay_edited(request, failed, form.cleaned_data)
            return HttpResponseRedirect(page)
        context = {
            "title": "Edit and replay",
            "original": "Edit and replay",
            "failed": failed,
            "form": form,
            "takes": getattr(registry.get(failed.handler), "takes", ""),
            "back": page,
        }
        return self._page(request, "edit.html", context)

    def _replay_edited(
        self, request: HttpRequest, failed: FailedJob, given: dict[str, Any]
    ) -> None:
        log = Log(self, request, given["reason"], "with edited arguments")
        answer = replay(
            failed.pk,
            by=request.user.get_username(),
            reason=given["reason"],
            witness=log.inside,
            using=home_of(failed),
            edited=given["payload"],
        )
        log.outside()
        self._tell(request, "replay", [answer_of(answer)])
