"""The schedules page: what is due when, what became of it, and three verbs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import router
from django.http import Http404, HttpResponseRedirect
from django.urls import path, reverse

from django_jobs.admin.actions import reason_field
from django_jobs.admin.base import ReadOnlyAdmin
from django_jobs.backends.home import jobs_database
from django_jobs.clock import from_datetime
from django_jobs.cron import stored
from django_jobs.cron.registry import all_schedules
from django_jobs.db.clock import for_people
from django_jobs.exceptions import UnknownSchedule
from django_jobs.ids import new_id
from django_jobs.models import ScheduleState, schedule_key
from django_jobs.operations.schedules import (
    overview_of_schedules,
    pause_schedule,
    resume_schedule,
    run_schedule_now,
    schedule_history,
)
from django_jobs.texts import printable

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    from django_jobs.operations.schedules import ScheduleOverview

PER_PAGE = 50
HISTORY_SHOWN = 100
VERBS = {"pause": "pause", "resume": "pause", "run": "run"}
"""What can be done → the permission that it needs."""
DONE = {
    "pause": "“{}” is paused: its ticks are skipped until it is resumed.",
    "resume": "“{}” goes on with its next tick.",
    "run": "“{}” was told to run now.",
}
NOT_DONE = {
    "pause": "“{}” was paused already; the reason is the new one.",
    "resume": "“{}” was not paused.",
}


class WhyForm(forms.Form):
    """Why somebody does it, and which press of the button it is."""

    reason = reason_field("Kept with the schedule, and in the log of operators.")
    press = forms.UUIDField(widget=forms.HiddenInput)


@admin.register(ScheduleState)
class ScheduleAdmin(ReadOnlyAdmin):
    """Declared schedules and those of the admin, in one list."""

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_jobs.pause_schedule")

    def has_run_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("django_jobs.run_schedule")

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(
                f"<str:key>/{verb}/",
                wrap(partial(self.verb_view, verb)),
                name=f"django_jobs_schedulestate_{verb}",
            )
            for verb in VERBS
        ]
        return [*own, *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Every schedule with its next runs and its last outcome."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        names = sorted(schedule.name for schedule in all_schedules())
        if wanted := request.GET.get("q", "").strip().lower():
            names = [name for name in names if wanted in name.lower()]
        page = Paginator(names, PER_PAGE).get_page(request.GET.get("p"))
        found = overview_of_schedules(only=list(page.object_list), runs=1)
        context = {
            "title": "Schedules",
            "rows": [_row(one) for one in found],
            "page": page,
            "unreadable": stored.unreadable_rows(),
            **(extra_context or {}),
        }
        return self._page(request, "list", context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One schedule, its next runs, and its history."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        one = _found(unquote(object_id))
        context = {
            "title": one.schedule.name,
            "original": one.schedule.name,
            "one": _row(one),
            "history": [
                {"tick": tick, "job_url": _job_url(tick.job_id)}
                for tick in schedule_history(one.schedule.name, limit=HISTORY_SHOWN)
            ],
            "may_pause": self.has_pause_permission(request),
            "may_run": self.has_run_permission(request),
            **(extra_context or {}),
        }
        return self._page(request, "detail", context)

    def verb_view(self, verb: str, request: HttpRequest, key: str) -> HttpResponse:
        """GET asks, POST does it."""
        allowed = getattr(self, f"has_{VERBS[verb]}_permission")(request)
        if not (self.has_view_permission(request) and allowed):
            raise PermissionDenied
        one = _found(unquote(key))
        form = WhyForm(request.POST or None, initial={"press": new_id()})
        back = reverse("admin:django_jobs_schedulestate_change", args=[key])
        if form.is_valid():
            self._do(request, verb, one, form.cleaned_data)
            return HttpResponseRedirect(back)
        context = {
            "title": f"{verb.capitalize()} “{one.schedule.name}”{' now' * (verb == 'run')}?",
            "original": verb.capitalize(),
            "verb": verb,
            "one": _row(one),
            "form": form,
            "back": back,
        }
        return self._page(request, "confirm", context)

    def _do(
        self, request: HttpRequest, verb: str, one: ScheduleOverview, given: dict[str, Any]
    ) -> None:
        name, reason = one.schedule.name, given["reason"]
        log = _Log(self, request, name, verb, reason)
        about: dict[str, Any] = {"by": request.user.get_username(), "reason": reason}
        if verb == "run":
            told = run_schedule_now(name, press=str(given["press"]), witness=log.inside, **about)
            log.outside()
            if told.decision == "failed":
                messages.error(request, printable(f"“{name}” could not be enqueued: {told.reason}"))
                return
            done = True
        else:
            operation = pause_schedule if verb == "pause" else resume_schedule
            done = operation(name, witness=log.inside, **about)
            log.outside()
        sentence = (DONE if done else NOT_DONE)[verb].format(printable(name))
        messages.add_message(request, messages.SUCCESS if done else messages.WARNING, sentence)

    def _page(self, request: HttpRequest, page: str, context: dict[str, Any]) -> HttpResponse:
        wanted = request.GET.get("q", "")
        return self.page_of(request, f"schedulestate/{page}.html", context, wanted=wanted)


class _Log:
    """Writes the admin's log entry, in the same transaction where that can be."""

    def __init__(
        self, model_admin: ScheduleAdmin, request: HttpRequest, name: str, verb: str, reason: str
    ) -> None:
        self._admin = model_admin
        self._request = request
        self._row = ScheduleState(key=schedule_key(name), name=name)
        said = f" Reason: {reason}" if reason else " No reason given."
        self._message = f"{'Run now' if verb == 'run' else verb.capitalize() + 'd'}.{said}"
        self._later = False

    def inside(self) -> None:
        # In another database a failure of this transaction would leave the entry behind.
        if router.db_for_write(LogEntry) == jobs_database():
            self._write()
        else:
            self._later = True

    def outside(self) -> None:
        if self._later:
            self._write()

    def _write(self) -> None:
        self._admin.log_change(self._request, self._row, self._message)


def _found(key: str) -> ScheduleOverview:
    for schedule in all_schedules():
        if schedule_key(schedule.name) == key:
            try:
                return overview_of_schedules(only=[schedule.name])[0]
            except UnknownSchedule:
                break  # it was deleted just now
    raise Http404("there is no such schedule")


def _row(one: ScheduleOverview) -> dict[str, Any]:
    """A schedule as the templates show it. Moments are what the site's settings ask for."""
    return {
        "overview": one,
        "schedule": one.schedule,
        "key": schedule_key(one.schedule.name),
        "next_runs": [for_people(from_datetime(moment)) for moment in one.next_runs],
        "last": one.last,
        "last_word": _word(one),
    }


def _word(one: ScheduleOverview) -> str:
    """What became of the last tick, in a word."""
    if one.last is None:
        return ""
    return one.last.decision if one.last.outcome == "none" else one.last.outcome


def _job_url(job_id: str) -> str:
    return f"{reverse('admin:django_jobs_jobresult_changelist')}?q={job_id}" if job_id else ""
