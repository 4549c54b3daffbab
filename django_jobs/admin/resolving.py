"""Replay and discard in the admin: ask first, then do it once, and say what became of it."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import HttpResponseRedirect, QueryDict
from django.urls import path, reverse
from django.utils.http import urlencode
from django.utils.translation import ngettext

from django_jobs.admin.base import ReadOnlyAdmin
from django_jobs.admin.databases import home_of, place, told_in, within
from django_jobs.admin.reasons import reason_field
from django_jobs.operations.dead_letters import discard, foresee
from django_jobs.operations.replay import replay
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.template.response import TemplateResponse
    from django.urls import URLPattern

    from django_jobs.models import FailedJob
    from django_jobs.operations.dead_letters import Discarded
    from django_jobs.operations.replay import Replayed

MOST_AT_ONCE = 500
REASONS_SHOWN = 5
KINDS_SHOWN = 20
NONE_LEFT = "None of these dead letters exists any more."
_KEY = re.compile(r"[0-9]{1,18}")
DONE = {"replay": "replayed", "discard": "discarded"}
_SENTENCES = {
    "replayed": "{} replayed as a new job.",
    "already-replayed": "{} had been replayed before; no second job was made.",
    "discarded": "{} discarded.",
    "already-discarded": "{} had been discarded before.",
    "refused": "{} cannot be replayed.",
    "forbidden": "{} left alone: you lack the permission.",
    # What was resolved the other way before:
    "replay/discarded": "{} had been discarded before and cannot be replayed.",
    "discard/replayed": "{} had been replayed before and cannot be discarded.",
}


class ReasonForm(forms.Form):
    """Why somebody does it; kept with the dead letter and in both logs."""

    reason = reason_field(
        "Kept with the dead letter, in its history and among the operator events."
    )


class ResolvingAdmin(ReadOnlyAdmin):
    """The two verbs of the dead-letter page, with a page in between that asks."""

    in_each_database = True

    def has_replay_permission(self, request: HttpRequest, obj: FailedJob | None = None) -> bool:
        return request.user.has_perm("django_jobs.replay_failedjob")

    def has_discard_permission(self, request: HttpRequest, obj: FailedJob | None = None) -> bool:
        return request.user.has_perm("django_jobs.discard_failedjob")

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(f"{verb}/", wrap(partial(self.resolve_view, verb)), name=f"{self._url}_{verb}")
            for verb in DONE
        ]
        return [*own, *super().get_urls()]

    def _alias(self, request: HttpRequest) -> str:
        return self.get_queryset(request).db

    def _page(
        self, request: HttpRequest, template: str, context: dict[str, Any]
    ) -> TemplateResponse:
        """One of the pages beside the list."""
        here = urlencode(place(self._alias(request)))
        return self.page_of(request, f"failedjob/{template}", {"here": here, **context})

    @property
    def _url(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}"

    def resolve_view(self, verb: str, request: HttpRequest) -> HttpResponse:
        """GET asks about the dead letters named ``ids``; POST with ``confirmed`` does it."""
        self._demand(request, verb)
        alias = self._alias(request)
        given = request.POST if request.method == "POST" else request.GET
        filters = given.get("filters", "") or urlencode(place(alias))
        chosen = [int(number) for number in given.getlist("ids") if _KEY.fullmatch(number)]
        form = ReasonForm(request.POST if "confirmed" in request.POST else None)
        letters = self.get_queryset(request).filter(pk__in=chosen[:MOST_AT_ONCE])
        if not form.is_valid():
            asked = self.ask(request, verb, letters, filters, form)
            return asked or HttpResponseRedirect(self._list_url(filters))
        found = list(letters.order_by("pk"))
        if not found:
            messages.warning(request, NONE_LEFT)
        self._tell(request, verb, self._resolve(request, verb, found, form.cleaned_data["reason"]))
        if len(found) == 1:
            page = reverse(f"admin:{self._url}_change", args=[found[0].pk])
            return HttpResponseRedirect(within(page, alias))
        return HttpResponseRedirect(self._list_url(filters))

    def ask(
        self,
        request: HttpRequest,
        verb: str,
        letters: QuerySet[FailedJob],
        filters: str = "",
        form: ReasonForm | None = None,
    ) -> HttpResponse | None:
        """The page that says what is going to happen, or None when nothing can."""
        self._demand(request, verb)
        rows = letters.order_by("pk").values_list("pk", "queue", "handler", "reason", "resolution")
        found = list(rows[:MOST_AT_ONCE])
        if not found:
            messages.warning(request, NONE_LEFT)
            return None
        waiting = [row for row in found if not row[4]]
        kinds = Counter(row[1:4] for row in waiting)
        seen = foresee(self._whole(letters), verb, MOST_AT_ONCE)
        context = {
            "title": f"{verb.capitalize()} {counted(len(found))}?",
            "original": verb.capitalize(),
            "verb": verb,
            "ids": [row[0] for row in found],
            "filters": filters,
            "form": form or ReasonForm(),
            "waiting": len(waiting),
            "resolved": len(found) - len(waiting),
            "refused": seen.refused,
            "going": max(len(waiting) - seen.refused, 0),
            "why": [(count, why) for why, count in seen.why.most_common(REASONS_SHOWN)],
            "kinds": [(count, *kind) for kind, count in kinds.most_common(KINDS_SHOWN)],
            "more_kinds": max(len(kinds) - KINDS_SHOWN, 0),
            "url": within(reverse(f"admin:{self._url}_{verb}"), letters.db),
            "back": self._list_url(filters),
        }
        return self._page(request, "confirm.html", context)

    def _whole(self, letters: QuerySet[FailedJob]) -> QuerySet[FailedJob]:
        """The same with all columns: a list leaves out what a verdict needs."""
        return letters.defer(None)

    def _demand(self, request: HttpRequest, verb: str, obj: FailedJob | None = None) -> None:
        if not (self.has_view_permission(request, obj) and self._may(request, verb, obj)):
            raise PermissionDenied

    def _may(self, request: HttpRequest, verb: str, obj: FailedJob | None = None) -> bool:
        """Whether somebody may do it, to a certain one if that is said."""
        allowed: Callable[[HttpRequest, FailedJob | None], bool]
        allowed = getattr(self, f"has_{verb}_permission")
        return allowed(request, obj)

    def _resolve(
        self, request: HttpRequest, verb: str, letters: Iterable[FailedJob], reason: str
    ) -> list[tuple[str, str, str]]:
        """Status, job and sentence of each dead letter."""
        by = request.user.get_username()
        answers = []
        for letter in letters:
            if not self._may(request, verb, letter):
                answers.append(("forbidden", str(letter.job_id), ""))
                continue
            log = Log(self, request, reason)
            operation = replay if verb == "replay" else discard
            home = home_of(letter)
            outcome = operation(letter.pk, by=by, reason=reason, witness=log.inside, using=home)
            log.outside()
            answers.append(answer_of(outcome))
        return answers

    def _tell(self, request: HttpRequest, verb: str, answers: list[tuple[str, str, str]]) -> None:
        for status, count in Counter(status for status, _job, _why in answers).items():
            sentence = _SENTENCES.get(f"{verb}/{status}", _SENTENCES[status])
            level = messages.SUCCESS if status == DONE[verb] else messages.WARNING
            if status in {"refused", "forbidden"}:
                level = messages.ERROR
            messages.add_message(request, level, sentence.format(counted(count)))
        for job, why in [(job, why) for _status, job, why in answers if why][:REASONS_SHOWN]:
            messages.error(request, printable(f"{job}: {why}"))

    def _list_url(self, filters: str) -> str:
        query = QueryDict(filters).urlencode()
        return reverse(f"admin:{self._url}_changelist") + (f"?{query}" if query else "")


class Log:
    """Writes the admin's log entry, in the same transaction where that can be."""

    def __init__(
        self, model_admin: ResolvingAdmin, request: HttpRequest, reason: str, how: str = ""
    ) -> None:
        self.model_admin = model_admin
        self.how = how
        self.request = request
        self.reason = reason
        self.later: tuple[FailedJob, str] | None = None

    def inside(self, failed: FailedJob, before: str) -> None:
        # In another database a failure of this transaction would leave the entry behind.
        if router.db_for_write(LogEntry) == home_of(failed):
            self._write(failed, before)
        else:
            self.later = (failed, before)

    def outside(self) -> None:
        if self.later is not None:
            self._write(*self.later)

    def _write(self, failed: FailedJob, before: str) -> None:
        what = failed.resolution.capitalize()
        if failed.replayed_as is not None:
            what = " ".join(filter(None, (what, f"as {failed.replayed_as}", self.how)))
        said = f" Reason: {self.reason}" if self.reason else " No reason given."
        message = f"{what}; it was {before or 'open'}.{told_in(home_of(failed))}{said}"
        self.model_admin.log_change(self.request, failed, message)


def answer_of(outcome: Replayed | Discarded) -> tuple[str, str, str]:
    """Status, job, and the sentence that the status alone does not say."""
    # Of a replay during which somebody discarded or purged the dead letter.
    new_id = getattr(outcome, "new_id", None)
    crossed = new_id is not None and outcome.status in {"discarded", "replayed"}
    why = outcome.why if crossed or outcome.status == "refused" else ""
    return outcome.status, outcome.job_id, why


def counted(count: int) -> str:
    return ngettext("%d dead letter", "%d dead letters", count) % count
