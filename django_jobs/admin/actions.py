"""Verbs of an admin page: ask first, with counts; then do it once, and say what became of it."""

from __future__ import annotations

import re
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
from django.http import HttpResponseRedirect, QueryDict
from django.urls import NoReverseMatch, path, reverse
from django.utils.http import urlencode
from django.utils.translation import ngettext

from django_jobs.admin.base import (
    ReadOnlyAdmin,
    home_of,
    place,
    told_in,
    within,
)
from django_jobs.backends.home import jobs_database
from django_jobs.operations.dead_letters import discard, foresee
from django_jobs.operations.replay import replay
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.template.response import TemplateResponse
    from django.urls import URLPattern

    from django_jobs.models import FailedJob
    from django_jobs.operations.dead_letters import Discarded
    from django_jobs.operations.replay import Replayed


# The one question that every page with verbs asks.


LONGEST_REASON = 1000


def reason_field(kept: str) -> forms.CharField:
    """Why somebody does it. ``kept``: where that can be read later."""
    return forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        strip=True,
        help_text=kept,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60, "class": "vLargeTextField"}),
    )


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


# Replay and discard in the admin: ask first, then do it once, and say what became of it.


REASONS_SHOWN = 5

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
            log = LetterLog(self, request, reason)
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


class LetterLog:
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
