"""Schedules: the list with their next and last runs, and pausing, resuming and running them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404
from django.urls import reverse
from django.utils.html import format_html

from django_jobs.admin.actions import ActingAdmin, Subject, Verb, WhyForm, reason_field
from django_jobs.admin.base import DetailAdmin
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
    from collections.abc import Sequence

    from django.http import HttpRequest, HttpResponse

    from django_jobs.admin.actions import Log
    from django_jobs.operations.schedules import ScheduleOverview

PER_PAGE = 50
HISTORY_SHOWN = 100


class PressForm(WhyForm):
    """The reason, and an id that makes one run of a form that is sent twice."""

    reason = reason_field("Kept with the schedule, and in the log of operators.")
    press = forms.UUIDField(widget=forms.HiddenInput)


PAUSE = Verb(
    label="Pause",
    permission="pause_schedule",
    note="Its ticks are skipped, and not made up for, until it is resumed. What was enqueued runs.",
    sentences={
        "done": "“{}” is paused: its ticks are skipped until it is resumed.",
        "same": "“{}” was paused already; the reason is the new one.",
    },
    done=frozenset({"done"}),
    form=PressForm,
)
RESUME = Verb(
    label="Resume",
    permission="pause_schedule",
    note="It goes on with its next tick. What was skipped is not made up for.",
    sentences={
        "done": "“{}” goes on with its next tick.",
        "same": "“{}” was not paused.",
    },
    done=frozenset({"done"}),
    form=PressForm,
)
RUN = Verb(
    label="Run now",
    permission="run_schedule",
    note="A job is enqueued at once, as a tick of its own, even while the schedule is paused or "
    "its gates are shut. Sent twice, this form does it once.",
    sentences={"done": "“{}” was asked to run now."},
    done=frozenset({"done"}),
    form=PressForm,
)
_LOGGED = {"pause": "Paused.", "resume": "Resumed.", "run": "Run now."}


@admin.register(ScheduleState)
class ScheduleAdmin(DetailAdmin, ActingAdmin):
    """Schedules declared in code and those made in the admin, in one list."""

    in_each_database = False
    verbs: ClassVar[dict[str, Verb]] = {"pause": PAUSE, "resume": RESUME, "run": RUN}
    verb_route = "<str:key>/{verb}/"
    detail_page = "schedulestate/detail.html"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """List the schedules with their next runs and their last outcomes."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        names = sorted(schedule.name for schedule in all_schedules())
        if wanted := request.GET.get("q", "").strip().lower():
            names = [name for name in names if wanted in name.lower()]
        page = Paginator(names, PER_PAGE).get_page(request.GET.get("p"))
        overviews = overview_of_schedules(only=list(page.object_list), runs=1)
        context = {
            "title": "Schedules",
            "rows": [_row(overview) for overview in overviews],
            "page": page,
            "unreadable": stored.unreadable_rows(),
            **(extra_context or {}),
        }
        sent = request.GET.get("q", "")
        return self.page_of(request, "schedulestate/list.html", context, wanted=sent)

    def row_of(self, request: HttpRequest, key: str) -> ScheduleOverview | None:
        """A schedule by its key; it may have no row in the database yet."""
        for schedule in all_schedules():
            if schedule_key(schedule.name) == key:
                try:
                    return overview_of_schedules(only=[schedule.name])[0]
                except UnknownSchedule:
                    break  # it was deleted in the meantime
        return None

    def not_there(self, request: HttpRequest, object_id: str) -> NoReturn:
        raise Http404("there is no such schedule")

    def detail(self, request: HttpRequest, overview: ScheduleOverview) -> dict[str, Any]:
        """A schedule, its next runs, and its history."""
        name = overview.schedule.name
        return {
            "title": name,
            "original": name,
            "row": _row(overview),
            "history": [
                {"tick": tick, "job_url": _job_url(tick.job_id)}
                for tick in schedule_history(name, limit=HISTORY_SHOWN)
            ],
            "may_pause": self.may(request, "pause"),
            "may_run": self.may(request, "run"),
        }

    def subjects(self, request: HttpRequest, ids: Sequence[str]) -> list[Subject]:
        """The schedule in the URL."""
        (key,) = ids
        overview = self.row_of(request, key)
        if overview is None:
            self.not_there(request, key)
        return [Subject(id=key, initial={"press": new_id()}, row=overview)]

    def named(self, subjects: Sequence[Subject]) -> str:
        return printable(subjects[0].row.schedule.name)

    def question(
        self, request: HttpRequest, verb: str, subjects: Sequence[Subject]
    ) -> dict[str, Any]:
        schedule = subjects[0].row.schedule
        expression = format_html(
            '<span class="dj-code">{}</span> in {}', schedule.expression, schedule.timezone
        )
        return {
            "title": f"{verb.capitalize()} “{schedule.name}”{' now' * (verb == 'run')}?",
            "button": self.verbs[verb].label,
            "facts": [
                ("Expression", expression, False),
                ("Handler", schedule.handler, True),
                ("Queue", schedule.queue or "none: it runs in a child of the scheduler", False),
            ],
        }

    def form_url(self, request: HttpRequest, verb: str, ids: Sequence[str]) -> str:
        return self.url_of(verb, *ids)

    def perform(
        self, verb: str, subject: Subject, data: dict[str, Any], log: Log
    ) -> tuple[str, str]:
        name = subject.row.schedule.name

        def witness() -> None:
            log.write(ScheduleState(key=schedule_key(name), name=name), _LOGGED[verb])

        about: dict[str, Any] = {"by": log.by, "reason": log.reason, "witness": witness}
        if verb == "run":
            tick = run_schedule_now(name, press=str(data["press"]), **about)
            if tick.decision == "failed":
                return "failed", f"“{name}” could not be enqueued: {tick.reason}"
            return "done", ""
        operation = pause_schedule if verb == "pause" else resume_schedule
        return ("done" if operation(name, **about) else "same"), ""


def _row(overview: ScheduleOverview) -> dict[str, Any]:
    """A schedule for the templates, with moments according to USE_TZ."""
    return {
        "overview": overview,
        "schedule": overview.schedule,
        "key": schedule_key(overview.schedule.name),
        "next_runs": [for_people(from_datetime(moment)) for moment in overview.next_runs],
        "last": overview.last,
        "last_word": _word(overview),
    }


def _word(overview: ScheduleOverview) -> str:
    """The outcome of the last tick, or its decision if it has none."""
    if overview.last is None:
        return ""
    return overview.last.decision if overview.last.outcome == "none" else overview.last.outcome


def _job_url(job_id: str) -> str:
    return f"{reverse('admin:django_jobs_jobresult_changelist')}?q={job_id}" if job_id else ""
