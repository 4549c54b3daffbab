"""Schedules made in the admin: a form that rejects those that could never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.forms.fields import InvalidJSONInput
from django.http import JsonResponse
from django.urls import path

from django_jobs.admin.base import LegibleAdmin, may_view_payload
from django_jobs.admin.payloads import in_editor, laid_out
from django_jobs.backends.home import jobs_database, record, store_now
from django_jobs.clock import to_datetime
from django_jobs.cron import stored
from django_jobs.cron.options import Missed, Overlap
from django_jobs.cron.problems import unreadable
from django_jobs.cron.registry import declared, exposed_handlers
from django_jobs.cron.schedule import Schedule
from django_jobs.cron.zones import zone_of
from django_jobs.definition import JobDefinition
from django_jobs.exceptions import InvalidPayload
from django_jobs.handlers.registry import registry
from django_jobs.models import AdminSchedule
from django_jobs.operations.replay import put_back
from django_jobs.operations.schedules import next_runs
from django_jobs.redaction import redacted
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    AnyForm = forms.ModelForm[AdminSchedule]
else:
    AnyForm = forms.ModelForm  # generic in its type stubs only

NO_ARGUMENTS: Mapping[str, Any] = {"args": [], "kwargs": {}}
RUNS_PREVIEWED = 10
LONGEST_EXPRESSION = LONGEST_NAME = 255


class PayloadField(forms.JSONField):
    """Multi-line JSON with invisible characters escaped."""

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, InvalidJSONInput) else in_editor(value)


class AdminScheduleForm(AnyForm):
    """Applies the same checks as for schedules in code."""

    class Meta:
        model = AdminSchedule
        exclude = ("changed_by", "changed_at")
        field_classes: ClassVar[dict[str, Any]] = {"payload": PayloadField}
        widgets: ClassVar[dict[str, Any]] = {
            "description": forms.Textarea(attrs={"rows": 2}),
            "payload": forms.Textarea(
                attrs={"class": "vLargeTextField dj-code", "spellcheck": "false"}
            ),
        }
        help_texts: ClassVar[dict[str, str]] = {
            "expression": "Minute, hour, day of the month, month, day of the week.",
            "timezone": "A zone of the IANA database, such as Europe/Paris.",
            "queue": "Without one it runs in a child of the scheduler, once.",
            "payload": 'For a function: {"args": [], "kwargs": {}}. Leave hidden values (••••) as '
            "they are to keep them.",
            "deadline": "Seconds after which a missed tick is not made up for.",
            "timeout": "Seconds; without it, that of the handler or the queue.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        exposed = [(key, key) for key in exposed_handlers()]
        replaced: dict[str, list[tuple[str, str]]] = {
            "handler": exposed,
            "missed": [(word.value, word.value) for word in Missed],
            "overlap": [(word.value, word.value) for word in Overlap],
        }
        for name, choices in replaced.items():
            if name in self.fields:
                initial = getattr(AdminSchedule(), name)
                self.fields[name] = forms.ChoiceField(choices=choices, initial=initial)
        if "payload" in self.fields:
            self.fields["payload"].initial = dict(NO_ARGUMENTS)
        for name, value in self.initial.items():
            if isinstance(value, str):
                self.initial[name] = printable(value)
        if "payload" in self.initial:
            self.initial["payload"] = redacted(self.initial["payload"])

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.instance.pk is not None:
            for name in cleaned.keys() - self.changed_data - {"payload"}:
                cleaned[name] = getattr(self.instance, name)  # the form may show it with escapes
        if not self.errors and "payload" in self.fields:
            try:
                cleaned["payload"] = self._payload(cleaned)
            except InvalidPayload as refusal:
                self.add_error("payload", str(refusal))
        if self.errors:
            return cleaned
        name = cleaned["name"]
        if any(schedule.name == name for schedule in declared()):
            self.add_error("name", f"a schedule in code or settings is named {name!r} already")
        kept = {field.name: getattr(self.instance, field.name) for field in self._row_fields()}
        for problem in stored.problems(AdminSchedule(**{**kept, **cleaned})):
            self.add_error(None, problem)
        return cleaned

    def _payload(self, cleaned: Mapping[str, Any]) -> Any:
        """The submitted value with redacted parts restored; raises InvalidPayload."""
        submitted, before = cleaned.get("payload"), self.instance
        if submitted is None:
            return dict(NO_ARGUMENTS)
        payload = put_back(submitted, before.payload, registry.get(before.handler))
        if payload != submitted and cleaned["handler"] != before.handler:
            raise InvalidPayload(
                "hidden values (••••) stay with the handler they were meant for; write the values "
                "themselves for another one"
            )
        return payload

    def _row_fields(self) -> Iterator[Any]:
        return (field for field in AdminSchedule._meta.concrete_fields if not field.primary_key)


@admin.register(AdminSchedule)
class AdminScheduleAdmin(LegibleAdmin):
    """Adds, changes and deletes schedules; the rest is on the page of schedules."""

    form = AdminScheduleForm
    as_cards = True
    list_display = ("name", "expression", "timezone", "handler", "queue", "enabled", "problem")
    ordering = ("name",)
    change_form_template = "admin/django_jobs/adminschedule/change_form.html"

    class Media:
        css: ClassVar[dict[str, Any]] = {"all": ("django_jobs/admin.css",)}
        js = ("django_jobs/schedule-preview.js",)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        name = "django_jobs_adminschedule_preview"
        return [path("preview/", wrap(self.preview_view), name=name), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(jobs_database())

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Hide the payload from users who may not view it; otherwise mask its secrets."""
        if obj is None:
            return tuple(AdminScheduleForm.base_fields)
        names = tuple(AdminScheduleForm.base_fields)
        if not may_view_payload(request.user):
            replaced = {"handler": "shown_handler", "payload": ""}
        elif self.has_change_permission(request, obj):
            return names
        else:
            replaced = {"payload": "shown_payload"}
        return tuple(filter(None, (replaced.get(name, name) for name in names)))

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> tuple[str, ...]:
        if obj is None or may_view_payload(request.user):
            return ("shown_payload",)
        return ("shown_handler",)  # another handler would get a payload that this user may not view

    @admin.display(description="handler")
    def shown_handler(self, row: AdminSchedule) -> str:
        return printable(row.handler)

    @admin.display(description="payload")
    def shown_payload(self, row: AdminSchedule) -> str:
        return laid_out(row.payload)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(exposed_handlers()) and super().has_add_permission(request)

    @admin.display(description="problem", empty_value="none")
    def problem(self, row: AdminSchedule) -> str | None:
        """Why the schedule is ignored: it was valid when saved, but may no longer be."""
        if any(schedule.name == row.name for schedule in declared()):
            return "a schedule in code or settings has its name, and is the one that runs"
        return printable(next(iter(stored.problems(row)), "")) or None

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        row: Any = obj
        alias = jobs_database()
        with transaction.atomic(using=alias):
            row.changed_by = request.user.get_username()[:150]
            row.changed_at = stored.moment_of_change(alias)
            row.save(using=alias)
            detail = {"changed": form.changed_data} if change else None
            self._record(request, "change" if change else "add", row, detail)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        with transaction.atomic(using=jobs_database()):
            self._record(request, "delete", obj)
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with transaction.atomic(using=jobs_database()):
            for row in queryset:
                self._record(request, "delete", row)
            super().delete_queryset(request, queryset)

    def _record(
        self, request: HttpRequest, verb: str, row: Any, detail: dict[str, Any] | None = None
    ) -> None:
        by = request.user.get_username()
        record(jobs_database(), f"{verb}-schedule", by=by, subject=row.name, detail=detail)

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """The next runs of an expression in a zone, or what is wrong with it; as JSON."""
        if not (self.has_add_permission(request) or self.has_change_permission(request)):
            raise PermissionDenied
        expression = request.GET.get("expression", "")[:LONGEST_EXPRESSION].strip()
        zone = request.GET.get("timezone", "").strip() or "UTC"
        job = JobDefinition("")
        # H in an expression stands for values that depend on the name.
        name = request.GET.get("name", "")[:LONGEST_NAME].strip() or "preview"
        schedule = Schedule(name=name, expression=expression, timezone=zone, job=job)
        if problem := unreadable(schedule):
            return JsonResponse({"problem": printable(problem.message), "runs": []})
        now = to_datetime(store_now(jobs_database()))
        local = zone_of(zone)
        runs = next_runs(schedule, now, RUNS_PREVIEWED)
        lines = [f"{moment.astimezone(local):%a %d %b %Y, %H:%M:%S %Z}" for moment in runs]
        return JsonResponse({"problem": "", "runs": lines})
