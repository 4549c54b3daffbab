"""Runs through dead letters: how far they are, and how to stop them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.urls import path, reverse
from django.utils.http import urlencode

from django_jobs.admin.base import ReadOnlyAdmin, recent_values
from django_jobs.admin.cells import away, badge, moment_cell, two_lines
from django_jobs.admin.databases import home_of, place, within
from django_jobs.admin.resolving import ReasonForm
from django_jobs.admin.run_log import log_stopped
from django_jobs.models import JobState, ResolutionRun
from django_jobs.operations.bulk import advance, carry, stop
from django_jobs.operations.explain import explain

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.urls import URLPattern

STEP_SECONDS = 0.5
_LIVE = {str(state.label) for state in JobState}


@admin.register(ResolutionRun)
class ResolutionRunAdmin(ReadOnlyAdmin):
    """Who may see dead letters may see what is done to them."""

    as_cards = True
    in_each_database = True
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
            for name in ("progress", "stop", "carry")
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

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """How far a run is; the page asks again by itself."""
        run = self.looked_at(request, object_id)
        if isinstance(run, HttpResponse):
            return run
        may = self._may(request, run)
        context = {
            "title": f"{run.verb.capitalize()} {run.total:,} dead letters",
            "original": f"Run {run.pk}",
            "run": run,
            "here": urlencode(place(home_of(run))),
            "progress": _progress(run),
            "matching": [(name, str(value)) for name, value in _narrowed(run)],
            "problems": run.problems,
            "form": ReasonForm(),
            "may": may,
            **_carried(request, run),
            **(extra_context or {}),
        }
        return self.page_of(request, "resolutionrun/run.html", context)

    def progress_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """How far a run is, for the page's script. A POST makes a short step before."""
        run = self._seen(request, object_id)
        if run is None:
            return JsonResponse({"state": "gone"}, status=404)
        if request.method == "POST":
            if not self._may(request, run):
                raise PermissionDenied
            run, _wait = advance(run.pk, seconds=STEP_SECONDS, using=home_of(run))
        return JsonResponse(_progress(run))

    def stop_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a run where it is."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        run = self._changeable(request, object_id)
        form = ReasonForm(request.POST)
        reason = form.cleaned_data["reason"] if form.is_valid() else ""
        by = request.user.get_username()
        if stop(run.pk, by=by, reason=reason, using=home_of(run)):
            run.refresh_from_db()
            log_stopped(request.user.pk, run, reason)
            messages.success(request, "The run was stopped. What it did stays done.")
        else:
            messages.warning(request, "The run had ended before.")
        return self._back(run)

    def carry_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Enqueue the job of a run anew, if it has none any more."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        run = self._changeable(request, object_id)
        if run.state == ResolutionRun.State.RUNNING:
            carry(run, using=home_of(run))
        return self._back(run)

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

    def _back(self, run: ResolutionRun) -> HttpResponse:
        page = reverse("admin:django_jobs_resolutionrun_change", args=[run.pk])
        return HttpResponseRedirect(within(page, home_of(run)))


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
    """Why the job that carries a run on does not run, and where it is to be seen."""
    if run.state != ResolutionRun.State.RUNNING or not run.carrier:
        return {"causes": (), "carrier_url": ""}
    told = explain(run.carrier)
    live = told.state in _LIVE
    seen = live and request.user.has_perm("django_jobs.view_job")
    return {
        "causes": [cause for cause in told.causes if cause.kind != "leased"],
        "ended": not live,
        "carrier_url": reverse("admin:django_jobs_job_change", args=[run.carrier]) if seen else "",
    }


def _narrowed(run: ResolutionRun) -> list[tuple[str, Any]]:
    return [
        (name, f"{len(value):,} found by a search" if name == "keys" else value)
        for name, value in run.matching.items()
    ]
