"""Runs that replay or discard many dead letters: starting, watching and stopping them."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.urls import path, reverse
from django.utils.http import urlencode

from django_jobs.admin.actions import (
    REASONS_SHOWN,
    ActingAdmin,
    LetterForm,
    Log,
    ResolvingAdmin,
    Subject,
    Verb,
    counted,
    some_ids,
)
from django_jobs.admin.base import (
    DetailAdmin,
    away,
    badge,
    database_note,
    home_of,
    moment_cell,
    place,
    recent_values,
    two_lines,
    within,
)
from django_jobs.admin.dead_letter_filters import matching_of
from django_jobs.models import JobState, ResolutionRun
from django_jobs.operations.bulk import MOST_A_SECOND, advance, begin, carry, stop
from django_jobs.operations.dead_letters import LOOKED_AT_MOST, foresee
from django_jobs.operations.explain import explain
from django_jobs.operations.search import FOUND_AT_MOST
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.urls import URLPattern

    from django_jobs.models import FailedJob
    from django_jobs.operations.dead_letters import Foreseen, Matching


# Entries in the admin's log.


def log_begun(log: Log, run: ResolutionRun) -> None:
    """Log the start of a run, and what it is narrowed to."""
    pace = f", at most {run.rate:g} a second" if run.rate else ""
    through = ", ".join(f"{name} {value}" for name, value in run.matching.items() if name != "keys")
    letters = f"{run.total} dead letters ({through or 'all open ones'})"
    log.write(run, f"Began to {run.verb} {letters}{pace}.{database_note(home_of(run))}", added=True)


def log_stopped(log: Log, run: ResolutionRun) -> None:
    """Log that a run was stopped."""
    log.write(run, f"Stopped after {run.dealt_with} of {run.total}.{database_note(home_of(run))}")


# The page of a run.

STEP_SECONDS = 0.5
_LIVE = {str(state.label) for state in JobState}
STOP = Verb(
    label="Stop",
    permission="",  # that of the run's own verb; see ``may``
    note="What it did stays done.",
    sentences={
        "stopped": "The run was stopped. What it did stays done.",
        "ended": "The run had ended before.",
    },
    done=frozenset({"stopped"}),
    danger=True,
    form=LetterForm,
)


@admin.register(ResolutionRun)
class ResolutionRunAdmin(DetailAdmin, ActingAdmin):
    """The runs. Seeing them takes the permission to see dead letters."""

    detail_page = "resolutionrun/run.html"
    verbs: ClassVar[dict[str, Verb]] = {"stop": STOP}
    verb_route = "<path:key>/{verb}/"
    kind_titles = ("Run", "Dealt with")
    list_display = ("shown_run", "shown_progress", "shown_state", "shown_rate", "begun")
    list_filter = ("state", recent_values("verb"))
    ordering = ("-id",)

    def has_view_permission(self, request: HttpRequest, obj: ResolutionRun | None = None) -> bool:
        return request.user.has_perm("django_jobs.view_failedjob")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(
                f"<path:object_id>/{name}/",
                wrap(getattr(self, f"{name}_view")),
                name=f"django_jobs_resolutionrun_{name}",
            )
            for name in ("progress", "carry")
        ]
        return [*own, *super().get_urls()]

    @admin.display(description="run")
    def shown_run(self, run: ResolutionRun) -> str:
        return two_lines(f"{run.verb.capitalize()} {run.total:,}", run.reason[:80])

    @admin.display(description="dealt with")
    def shown_progress(self, run: ResolutionRun) -> str:
        refused = f"{run.refused:,} refused" if run.refused else ""
        return two_lines(f"{run.dealt_with:,} of {run.total:,}", refused)

    @admin.display(description="state")
    def shown_state(self, run: ResolutionRun) -> str:
        return badge(run.state)

    @admin.display(description="pace")
    def shown_rate(self, run: ResolutionRun) -> str:
        return f"{run.rate:g} a second" if run.rate else "–"

    @admin.display(description="begun")
    def begun(self, run: ResolutionRun) -> str:
        return moment_cell(run.started_at)

    def detail(self, request: HttpRequest, run: ResolutionRun) -> dict[str, Any]:
        """The progress of a run; the page refreshes it by itself."""
        return {
            "title": f"{run.verb.capitalize()} {run.total:,} dead letters",
            "original": f"Run {run.pk}",
            "run": run,
            "here": urlencode(place(home_of(run))),
            "progress": _progress(run),
            "matching": [(name, str(value)) for name, value in _narrowed(run)],
            "problems": run.problems,
            "form": LetterForm(),
            "may": self._may(request, run),
            **_carried(request, run),
        }

    def progress_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The progress of a run, for the page's script. A POST makes a short step first."""
        run = self._seen(request, object_id)
        if run is None:
            return JsonResponse({"state": "gone"}, status=404)
        if request.method == "POST":
            if not self._may(request, run):
                raise PermissionDenied
            run, _wait = advance(run.pk, seconds=STEP_SECONDS, using=home_of(run))
        return JsonResponse(_progress(run))

    def act_view(self, verb: str, request: HttpRequest, key: str = "") -> HttpResponse:
        self._changeable(request, key)
        return super().act_view(verb, request, key)

    def may(self, request: HttpRequest, verb: str, row: ResolutionRun | None = None) -> bool:
        """Whether the user may see runs, and stop ``row`` if it is given."""
        return self.has_view_permission(request) and (row is None or self._may(request, row))

    def subjects(self, request: HttpRequest, ids: Sequence[str]) -> list[Subject]:
        return [
            Subject(
                id=str(run.pk),
                kind=(f"{run.verb.capitalize()} {run.total:,}", f"{run.dealt_with:,}"),
                row=run,
            )
            for key in ids
            if (run := self.get_object(request, key))
        ]

    def question(
        self, request: HttpRequest, verb: str, subjects: Sequence[Subject]
    ) -> dict[str, Any]:
        run = subjects[0].row
        return {"title": "Stop the run?", "button": "Stop", "back_url": self._url(run)}

    def perform(
        self, verb: str, subject: Subject, data: dict[str, Any], log: Log
    ) -> tuple[str, str]:
        run = subject.row
        if not stop(run.pk, by=log.by, reason=log.reason, using=home_of(run)):
            return "ended", ""
        run.refresh_from_db()
        log_stopped(log, run)
        return "stopped", ""

    def form_url(self, request: HttpRequest, verb: str, ids: Sequence[str]) -> str:
        return within(self.url_of(verb, *ids), self.get_queryset(request).db)

    def done_url(self, request: HttpRequest, back: str, ids: Sequence[str]) -> str:
        return within(self.back_url(back, ids), self.get_queryset(request).db)

    def carry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Enqueue a new job for a run whose job is gone."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        run = self._changeable(request, object_id)
        if run.state == ResolutionRun.State.RUNNING:
            carry(run, using=home_of(run))
        return HttpResponseRedirect(self._url(run))

    def _seen(self, request: HttpRequest, object_id: str) -> ResolutionRun | None:
        run: ResolutionRun | None = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, run):
            raise PermissionDenied
        return run

    def _changeable(self, request: HttpRequest, object_id: str) -> ResolutionRun:
        run = self._seen(request, object_id)
        if run is None or not self._may(request, run):
            raise PermissionDenied
        return run

    def _may(self, request: HttpRequest, run: ResolutionRun) -> bool:
        return run.verb in {"replay", "discard"} and request.user.has_perm(
            f"django_jobs.{run.verb}_failedjob"
        )

    def _url(self, run: ResolutionRun) -> str:
        page = reverse("admin:django_jobs_resolutionrun_change", args=[run.pk])
        return within(page, home_of(run))


def _progress(run: ResolutionRun) -> dict[str, Any]:
    running = run.state == ResolutionRun.State.RUNNING
    stepped = run.stepped_at or run.started_at
    return {
        "state": run.state,
        "total": run.total,
        "dealt_with": run.dealt_with,
        "done": run.done,
        "refused": run.refused,
        "passed_over": run.passed_over,
        "percent": 100 if not run.total else round(100 * run.dealt_with / run.total, 1),
        "last": away(stepped) if running else "",
    }


def _carried(request: HttpRequest, run: ResolutionRun) -> dict[str, Any]:
    """Why the job of a run is not running, and the URL of that job."""
    if run.state != ResolutionRun.State.RUNNING or not run.carrier:
        return {"causes": (), "carrier_url": ""}
    explanation = explain(run.carrier)
    live = explanation.state in _LIVE
    seen = live and request.user.has_perm("django_jobs.view_job")
    return {
        "causes": [cause for cause in explanation.causes if cause.kind != "leased"],
        "ended": not live,
        "carrier_url": reverse("admin:django_jobs_job_change", args=[run.carrier]) if seen else "",
    }


def _narrowed(run: ResolutionRun) -> list[tuple[str, Any]]:
    return [
        (name, f"{len(value):,} found by a search" if name == "keys" else value)
        for name, value in run.matching.items()
    ]


# Starting a run through all dead letters of a filtered list.

PACED_FROM = 100
PACE = 10


class RunForm(LetterForm):
    """The rate and the reason. A form that is sent twice starts one run, by its token."""

    field_order = ("rate", "reason", "token")
    rate = forms.FloatField(
        label="At most so many a second",
        required=False,
        min_value=0.01,
        max_value=MOST_A_SECOND,
        help_text="Leave it empty to go as fast as it can.",
        widget=forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"}),
    )
    token = forms.CharField(max_length=64, widget=forms.HiddenInput)


class BeginningAdmin(ResolvingAdmin):
    """Adds a page for each verb, which takes the filters of the list from its URL."""

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(
                f"{verb}-all/",
                wrap(partial(self.begin_view, verb)),
                name=f"{self.url_name}_{verb}_all",
            )
            for verb in self.verbs
        ]
        return [*own, *super().get_urls()]

    def ask_about_selected(
        self, request: HttpRequest, verb: str, letters: QuerySet[FailedJob]
    ) -> HttpResponse:
        """Confirm the selected dead letters one by one, or all of the list as a run."""
        if request.POST.get("select_across") == "1":
            url = reverse(f"admin:{self.url_name}_{verb}_all")
            return HttpResponseRedirect(f"{url}?{request.GET.urlencode()}")
        return self.ask(request, verb, some_ids(letters), request.GET.urlencode())

    def begin_view(self, verb: str, request: HttpRequest) -> HttpResponse:
        """GET shows the form; POST makes a dry run (``dry_run``) or starts the run."""
        self.demand(request, verb)
        alias = self._alias(request)
        try:
            matching = matching_of(request.GET, alias, request)
        except ValueError as problem:
            messages.error(request, printable(f"{problem}; choose other filters."))
            return HttpResponseRedirect(within(self.back_url("", ()), alias))
        begins = request.method == "POST" and "dry_run" not in request.POST
        form = RunForm(request.POST if request.method == "POST" else None)
        if begins and form.is_valid():
            return self._begin(request, verb, matching, form.cleaned_data)
        letters = matching.letters(alias)
        total = letters.count()
        if request.method != "POST":
            pace = PACE if verb == "replay" and total > PACED_FROM else None
            form = RunForm(initial={"rate": pace, "token": uuid.uuid4().hex})
        seen = foresee(letters, verb) if "dry_run" in request.POST else None
        doing, narrowed = self.verbs[verb], request.GET.urlencode()
        context = {
            "title": f"{doing.label} all {counted(total)}?",
            "original": f"{doing.label} all",
            "doing": doing,
            "verb": verb,
            "button": f"{doing.label} {counted(total)}" if total else "",
            "form": form,
            "total": total,
            "conditions": _conditions(matching),
            "by_search": matching.keys is not None and len(matching.keys) >= FOUND_AT_MOST,
            "seen": None if seen is None else _dry_run_counts(seen, total),
            "url": f"{request.path}?{narrowed}",
            "back_url": self.back_url(narrowed, ()),
        }
        return self._page(request, "begin.html", context)

    def _begin(
        self, request: HttpRequest, verb: Any, matching: Matching, data: dict[str, Any]
    ) -> HttpResponse:
        log = Log(self, request, data["reason"])
        run = begin(
            verb,
            matching,
            by=log.by,
            reason=log.reason,
            rate=data["rate"],
            token=data["token"],
            using=self._alias(request),
            witness=partial(log_begun, log),
        )
        log.outside()
        page = reverse("admin:django_jobs_resolutionrun_change", args=[run.pk])
        return HttpResponseRedirect(within(page, self._alias(request)))


def _conditions(matching: Matching) -> list[tuple[str, str]]:
    """The filters of a run, with labels for people."""
    conditions = [
        ("Queue", matching.queue),
        ("Handler", matching.handler),
        ("Reason", matching.reason),
        ("Error group", matching.fingerprint),
        ("Failed since", matching.since and str(matching.since)),
        ("Failed before", matching.until and str(matching.until)),
        ("Search", None if matching.keys is None else f"{len(matching.keys):,} found by it"),
    ]
    return [(name, value) for name, value in conditions if value]


def _dry_run_counts(seen: Foreseen, total: int) -> dict[str, Any]:
    return {
        "looked": seen.looked,
        "partly": total > LOOKED_AT_MOST,
        "would": seen.would,
        "refused": seen.refused,
        "why": [(count, why) for why, count in seen.why.most_common(REASONS_SHOWN)],
    }
