"""Verbs of an admin page: ask first, with counts; then do it once, and say what became of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import HttpResponseRedirect
from django.urls import NoReverseMatch, path, reverse
from django.utils.http import urlencode

from django_jobs.admin.base import ReadOnlyAdmin
from django_jobs.admin.reasons import reason_field
from django_jobs.db.home import jobs_database
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

MOST_AT_ONCE = 500
LONGEST_ID = 140
KINDS_SHOWN = 20
BACK_TO = {"overview": "admin:django_jobs_overview_changelist"}


def some_ids(chosen: QuerySet[Any]) -> list[str]:
    """The keys of what was chosen, as many as are needed to see that it is too much."""
    return [str(pk) for pk in chosen.values_list("pk", flat=True)[: MOST_AT_ONCE + 1]]


class WhyForm(forms.Form):
    """Why somebody does it; kept in both logs."""

    reason = reason_field("Kept in the history and among the operator events.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing that a verb is about. ``kind``: the cells under which it is counted."""

    id: str
    kind: tuple[str, ...]
    database: str = ""
    initial: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Something that an operator can do.

    ``sentences``: what is said of each status that ``perform`` of the page may answer, with
    ``{}`` for the number; ``done`` are the statuses of success. ``note``: what will happen.
    """

    label: str
    permission: str
    note: str
    sentences: Mapping[str, str]
    done: frozenset[str]
    danger: bool = False
    form: type[WhyForm] = WhyForm
    form_for_several: type[WhyForm] | None = None


class ActingAdmin(ReadOnlyAdmin):
    """A page with verbs. Each is POSTed, has its own permission, and is asked about first."""

    change_form_template = "admin/django_jobs/acting_detail.html"
    in_each_database = True
    as_cards = True
    verbs: ClassVar[Mapping[str, Verb]] = {}
    kind_titles: ClassVar[tuple[str, ...]] = ()

    def subjects(self, request: HttpRequest, ids: Sequence[str]) -> list[Subject]:
        """What is there of what was chosen."""
        raise NotImplementedError  # each page's own; a ModelAdmin has no room for an ABC

    def perform(
        self, verb: str, subject: Subject, data: dict[str, Any], log: Log
    ) -> tuple[str, str]:
        """Do it; a status of the verb, and a word about it if there is one."""
        raise NotImplementedError  # as above

    def may(self, request: HttpRequest, verb: str) -> bool:
        """Whether somebody may look at this page and do this."""
        allowed = self.has_view_permission(request)
        return allowed and request.user.has_perm(f"django_jobs.{self.verbs[verb].permission}")

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        name = "" if row is None else self.subject_id(row)
        buttons = [
            {"label": doing.label, "url": f"{self.url_of(verb)}?{urlencode({'ids': name})}"}
            for verb, doing in self.verbs.items()
            if name and self.may(request, verb)
        ]
        context = {"buttons": buttons, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, context)

    def subject_id(self, row: Any) -> str:
        """The id under which a row is a subject."""
        return str(row.pk)

    def url_of(self, verb: str) -> str:
        """Where a verb is asked about."""
        return reverse(f"admin:{self.url_name}_{verb}")

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(f"{verb}/", wrap(partial(self.act_view, verb)), name=f"{self.url_name}_{verb}")
            for verb in self.verbs
        ]
        return [*own, *super().get_urls()]

    @property
    def url_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}"

    def act_view(self, verb: str, request: HttpRequest) -> HttpResponse:
        """GET asks about what ``ids`` names; POST with ``confirmed`` does it."""
        given = request.POST if request.method == "POST" else request.GET
        ids = [one for one in given.getlist("ids") if 0 < len(one) <= LONGEST_ID]
        bound = request.POST if request.method == "POST" and "confirmed" in given else None
        return self.ask(request, verb, ids, given.get("back", ""), bound)

    def ask(
        self,
        request: HttpRequest,
        verb: str,
        ids: Sequence[str],
        back: str = "",
        bound: Mapping[str, Any] | None = None,
    ) -> HttpResponse:
        """The page that says what is going to happen; with a valid form, it happens."""
        if not self.may(request, verb):
            raise PermissionDenied
        back_url = self._back_url(back, ids)
        if len(ids) > MOST_AT_ONCE:
            messages.error(request, f"At most {MOST_AT_ONCE} at a time can be handled here.")
            return HttpResponseRedirect(back_url)
        subjects = self.subjects(request, ids)
        if not subjects:
            messages.warning(request, "Nothing of what was chosen is there any more.")
            return HttpResponseRedirect(self._back_url(back, ()))
        doing = self.verbs[verb]
        initial = dict(subjects[0].initial) if len(subjects) == 1 else {}
        several = len(subjects) > 1 and doing.form_for_several
        form = (several or doing.form)(bound, initial=initial)
        if form.is_valid():
            self._do(request, verb, subjects, form.cleaned_data)
            return HttpResponseRedirect(back_url)
        kinds = Counter(subject.kind for subject in subjects)
        context = {
            "title": f"{doing.label}?",
            "original": doing.label,
            "doing": doing,
            "form": form,
            "kinds": [
                (count, list(zip(self.kind_titles, kind, strict=True)))
                for kind, count in kinds.most_common(KINDS_SHOWN)
            ],
            "more_kinds": max(len(kinds) - KINDS_SHOWN, 0),
            "kind_titles": self.kind_titles,
            "url": self.url_of(verb),
            "back_url": back_url,
        }
        return self.page_of(request, "confirm.html", context, subjects=subjects, back=back)

    def _do(
        self, request: HttpRequest, verb: str, subjects: Sequence[Subject], data: dict[str, Any]
    ) -> None:
        doing, said = self.verbs[verb], []
        counts: Counter[str] = Counter()
        for subject in subjects:
            log = Log(self, request, data["reason"])
            status, told = self.perform(verb, subject, data, log)
            log.outside()
            counts[status] += 1
            if told:
                said.append(told)
        for status, count in counts.items():
            level = messages.SUCCESS if status in doing.done else messages.WARNING
            messages.add_message(request, level, doing.sentences[status].format(count))
        for told in said[:5]:
            messages.error(request, printable(told))

    def _back_url(self, back: str, ids: Sequence[str]) -> str:
        if back in BACK_TO:
            return reverse(BACK_TO[back])
        if back == "page" and len(ids) == 1:
            try:
                return reverse(f"admin:{self.url_name}_change", args=[ids[0]])
            except NoReverseMatch:
                pass
        return reverse(f"admin:{self.url_name}_changelist")


class Log:
    """Writes the admin's log entry, in the same transaction where that can be."""

    def __init__(self, page: ReadOnlyAdmin, request: HttpRequest, reason: str) -> None:
        self.by = request.user.get_username()
        self.reason = reason
        self._page = page
        self._request = request
        self._later: Callable[[], None] | None = None

    def write(self, row: Model, what: str) -> None:
        """To be called in the transaction that does it."""
        # In another database a failure of this transaction would leave the entry behind.
        database = row._state.db or jobs_database()  # noqa: SLF001 - where it is from
        if router.db_for_write(LogEntry) == database:
            self._write(row, what)
        else:
            self._later = partial(self._write, row, what)

    def outside(self) -> None:
        """To be called after that transaction."""
        if self._later is not None:
            self._later()

    def _write(self, row: Model, what: str) -> None:
        said = f"Reason: {self.reason}" if self.reason else "No reason given."
        self._page.log_change(self._request, row, f"{what} {said}")
