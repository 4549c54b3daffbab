"""Replaying or discarding all that a narrowed list holds: the page that asks and begins."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.http import HttpResponseRedirect
from django.urls import path, reverse

from django_jobs.admin.databases import within
from django_jobs.admin.dead_letter_filters import matching_of
from django_jobs.admin.resolving import (
    DONE,
    REASONS_SHOWN,
    ReasonForm,
    ResolvingAdmin,
    counted,
)
from django_jobs.admin.run_log import log_begun
from django_jobs.operations.bulk import MOST_A_SECOND, begin
from django_jobs.operations.dead_letters import LOOKED_AT_MOST, foresee
from django_jobs.operations.search import FOUND_AT_MOST
from django_jobs.texts import printable

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    from django_jobs.models import FailedJob
    from django_jobs.operations.dead_letters import Foreseen, Matching

PACED_FROM = 100
PACE = 10


class RunForm(ReasonForm):
    """How fast, and why. The token makes one run of a form that is sent twice."""

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
    """Adds a page for each verb, whose address is that of the list it is about."""

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(
                f"{verb}-all/",
                wrap(partial(self.begin_view, verb)),
                name=f"{self._url}_{verb}_all",
            )
            for verb in DONE
        ]
        return [*own, *super().get_urls()]

    def ask_about_selected(
        self, request: HttpRequest, verb: str, letters: QuerySet[FailedJob]
    ) -> HttpResponse | None:
        """What the list's own actions lead to: few are named, all of a list are a run."""
        if request.POST.get("select_across") == "1":
            url = reverse(f"admin:{self._url}_{verb}_all")
            return HttpResponseRedirect(f"{url}?{request.GET.urlencode()}")
        return self.ask(request, verb, letters, request.GET.urlencode())

    def begin_view(self, verb: str, request: HttpRequest) -> HttpResponse:
        """GET asks; POST tries it out (``dry_run``) or begins."""
        self._demand(request, verb)
        alias = self._alias(request)
        try:
            matching = matching_of(request.GET, alias, request)
        except ValueError as problem:
            messages.error(request, printable(f"{problem}; choose other filters."))
            return HttpResponseRedirect(within(self._list_url(""), alias))
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
        narrowed = request.GET.urlencode()
        context = {
            "title": f"{verb.capitalize()} all {counted(total)}?",
            "original": f"{verb.capitalize()} all",
            "verb": verb,
            "form": form,
            "total": total,
            "conditions": _conditions(matching),
            "by_search": matching.keys is not None and len(matching.keys) >= FOUND_AT_MOST,
            "seen": None if seen is None else _told(seen, total),
            "url": f"{request.path}?{narrowed}",
            "back": self._list_url(narrowed),
        }
        return self._page(request, "begin.html", context)

    def _begin(
        self, request: HttpRequest, verb: Any, matching: Matching, given: dict[str, Any]
    ) -> HttpResponse:
        run = begin(
            verb,
            matching,
            by=request.user.get_username(),
            reason=given["reason"],
            rate=given["rate"],
            token=given["token"],
            using=self._alias(request),
            witness=partial(log_begun, request.user.pk),
        )
        page = reverse("admin:django_jobs_resolutionrun_change", args=[run.pk])
        return HttpResponseRedirect(within(page, self._alias(request)))


def _conditions(matching: Matching) -> list[tuple[str, str]]:
    """What a run is narrowed to, in words."""
    said = [
        ("Queue", matching.queue),
        ("Handler", matching.handler),
        ("Reason", matching.reason),
        ("Error group", matching.fingerprint),
        ("Failed since", matching.since and str(matching.since)),
        ("Failed before", matching.until and str(matching.until)),
        ("Search", None if matching.keys is None else f"{len(matching.keys):,} found by it"),
    ]
    return [(name, value) for name, value in said if value]


def _told(seen: Foreseen, total: int) -> dict[str, Any]:
    return {
        "looked": seen.looked,
        "partly": total > LOOKED_AT_MOST,
        "would": seen.would,
        "refused": seen.refused,
        "why": [(count, why) for why, count in seen.why.most_common(REASONS_SHOWN)],
    }
