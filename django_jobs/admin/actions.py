"""Actions of operators: a confirmation page with counts, one execution, and a report.

The first part serves every page with such actions, the second replays and discards dead letters.
"""

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
from django.utils.safestring import SafeString
from django.utils.translation import ngettext

from django_jobs.admin.base import (
    ReadOnlyAdmin,
    database_note,
    home_of,
    place,
    within,
)
from django_jobs.backends.home import jobs_database
from django_jobs.operations.dead_letters import discard, foresee
from django_jobs.operations.replay import replay
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.template.response import TemplateResponse
    from django.urls import URLPattern

    from django_jobs.models import FailedJob
    from django_jobs.operations.dead_letters import Discarded
    from django_jobs.operations.replay import Replayed


LONGEST_REASON = 1000
MOST_AT_ONCE = 500
LONGEST_ID = 140
KINDS_SHOWN = 20
REASONS_SHOWN = 5
BACK_TO = {"overview": "admin:django_jobs_overview_changelist"}
FORBIDDEN = "forbidden"
_LEFT_ALONE = "{} left alone: you lack the permission."


def reason_field(kept: str) -> forms.CharField:
    """The field for the reason of an action. ``kept``: where the reason can be read later."""
    return forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        strip=True,
        help_text=kept,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60, "class": "vLargeTextField"}),
    )


class WhyForm(forms.Form):
    """The reason of an action, kept in both logs."""

    reason = reason_field("Kept in the history and among the operator events.")


def some_ids(chosen: QuerySet[Any]) -> list[str]:
    """The keys of the selected rows, at most one more than a page accepts at once."""
    return [str(pk) for pk in chosen.values_list("pk", flat=True)[: MOST_AT_ONCE + 1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An object that a verb is applied to.

    ``kind``: the cells under which the confirmation page counts it; empty if it is not counted.
    ``row``: the row that a permission may depend on.
    """

    id: str
    kind: tuple[str, ...] = ()
    database: str = ""
    initial: Mapping[str, Any] = field(default_factory=dict)
    row: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An action that an operator can take.

    ``sentences``: the message for each status that the page's ``perform`` can return, with ``{}``
    for the subjects; a status without a sentence has no message. ``done``: the statuses of
    success, ``failed``: those of an error. ``note``: what will happen.
    """

    label: str
    permission: str
    note: str
    sentences: Mapping[str, str]
    done: frozenset[str]
    failed: frozenset[str] = frozenset()
    danger: bool = False
    form: type[WhyForm] = WhyForm
    form_for_several: type[WhyForm] | None = None

    def sentence(self, status: str) -> str:
        return self.sentences.get(status, _LEFT_ALONE if status == FORBIDDEN else "")

    def level(self, status: str) -> int:
        if status == FORBIDDEN or status in self.failed:
            return messages.ERROR
        return messages.SUCCESS if status in self.done else messages.WARNING


class ActingAdmin(ReadOnlyAdmin):
    """A page with verbs. Each has its own permission, asks for confirmation, and runs on POST."""

    change_form_template = "admin/django_jobs/acting_detail.html"
    in_each_database = True
    as_cards = True
    verbs: ClassVar[Mapping[str, Verb]] = {}
    kind_titles: ClassVar[tuple[str, ...]] = ()
    verb_route: ClassVar[str] = "{verb}/"
    back_field: ClassVar[str] = "back"
    none_left: ClassVar[str] = "Nothing of what was chosen is there any more."

    # Every page implements these two; a ModelAdmin cannot be an ABC as well.

    def subjects(self, request: HttpRequest, ids: Sequence[str]) -> list[Subject]:
        """The selected objects that still exist."""
        raise NotImplementedError

    def perform(
        self, verb: str, subject: Subject, data: dict[str, Any], log: Log
    ) -> tuple[str, str]:
        """Apply the verb; return its status, and an explanation or an empty text."""
        raise NotImplementedError

    # A page may override these.

    def may(self, request: HttpRequest, verb: str, row: Any = None) -> bool:
        """Whether the user may see this page and apply the verb, to ``row`` if it is given."""
        allowed = self.has_view_permission(request, row)
        return allowed and request.user.has_perm(f"django_jobs.{self.verbs[verb].permission}")

    def question(
        self, request: HttpRequest, verb: str, subjects: Sequence[Subject]
    ) -> dict[str, Any]:
        """The context of the confirmation page: at least its title and its button.

        An empty ``button`` leaves the button out. ``facts``: names, values, and whether a value
        is code. ``warnings``: sentences, each with its reasons and their counts.
        """
        label = self.verbs[verb].label
        return {"title": f"{label}?", "button": f"{label}: {len(subjects)}"}

    def named(self, subjects: Sequence[Subject]) -> str:
        """How a message names the subjects."""
        return str(len(subjects))

    def subject_id(self, row: Any) -> str:
        """The id of a row as a subject."""
        return str(row.pk)

    def form_url(self, request: HttpRequest, verb: str, ids: Sequence[str]) -> str:
        """The URL that the confirmation form posts to."""
        return self.url_of(verb)

    def back_from(self, request: HttpRequest) -> str:
        """The default of the hidden field that leads back from the confirmation page."""
        return ""

    def back_url(self, back: str, ids: Sequence[str]) -> str:
        """The URL to return to on cancelling. ``back``: the value of the form's hidden field."""
        if back in BACK_TO:
            return reverse(BACK_TO[back])
        if back == "page" and len(ids) == 1:
            try:
                return reverse(f"admin:{self.url_name}_change", args=[ids[0]])
            except NoReverseMatch:
                pass
        return reverse(f"admin:{self.url_name}_changelist")

    def done_url(self, request: HttpRequest, back: str, ids: Sequence[str]) -> str:
        """The URL to go to after the action."""
        return self.back_url(back, ids)

    # The views.

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

    def url_of(self, verb: str, *key: str) -> str:
        """The URL of a verb's confirmation page."""
        return reverse(f"admin:{self.url_name}_{verb}", args=key)

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(
                self.verb_route.format(verb=verb),
                wrap(partial(self.act_view, verb)),
                name=f"{self.url_name}_{verb}",
            )
            for verb in self.verbs
        ]
        return [*own, *super().get_urls()]

    @property
    def url_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}"

    def act_view(self, verb: str, request: HttpRequest, key: str = "") -> HttpResponse:
        """GET asks for confirmation, for the URL's key or for ``ids``; POST acts if it is valid.

        For ``ids`` it needs ``confirmed`` as well: lists post them to get to the question.
        """
        if key:
            bound = request.POST if request.method == "POST" else None
            return self.ask(request, verb, [unquote(key)], "page", bound)
        data = request.POST if request.method == "POST" else request.GET
        ids = [name for name in data.getlist("ids") if 0 < len(name) <= LONGEST_ID]
        bound = request.POST if "confirmed" in request.POST else None
        return self.ask(request, verb, ids, data.get(self.back_field, ""), bound)

    def ask(
        self,
        request: HttpRequest,
        verb: str,
        ids: Sequence[str],
        back: str = "",
        bound: Mapping[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the confirmation page; with a valid form, act and redirect."""
        self.demand(request, verb)
        back = back or self.back_from(request)
        if len(ids) > MOST_AT_ONCE:
            messages.error(request, f"At most {MOST_AT_ONCE} at a time can be handled here.")
            return HttpResponseRedirect(self.back_url(back, ids))
        subjects = self.subjects(request, ids)
        if not subjects:
            messages.warning(request, self.none_left)
            return HttpResponseRedirect(self.back_url(back, ()))
        doing = self.verbs[verb]
        initial = dict(subjects[0].initial) if len(subjects) == 1 else {}
        several = len(subjects) > 1 and doing.form_for_several
        form = (several or doing.form)(bound, initial=initial)
        if form.is_valid():
            self.do(request, verb, subjects, form.cleaned_data)
            there = [subject.id for subject in subjects]
            return HttpResponseRedirect(self.done_url(request, back, there))
        context = {
            "original": doing.label,
            "doing": doing,
            "form": form,
            **self._kinds(subjects),
            "url": self.form_url(request, verb, ids),
            "back_url": self.back_url(back, ids),
            **self.question(request, verb, subjects),
        }
        hidden = [("ids", subject.id) for subject in subjects]
        hidden += [(self.back_field, back), ("confirmed", "1")]
        return self.page_of(request, "confirm.html", context, hidden=hidden)

    def demand(self, request: HttpRequest, verb: str) -> None:
        if not self.may(request, verb):
            raise PermissionDenied

    def _kinds(self, subjects: Sequence[Subject]) -> dict[str, Any]:
        kinds = Counter(subject.kind for subject in subjects if subject.kind)
        return {
            "kinds": [
                (count, list(zip(self.kind_titles, kind, strict=True)))
                for kind, count in kinds.most_common(KINDS_SHOWN)
            ],
            "more_kinds": max(len(kinds) - KINDS_SHOWN, 0),
            "kind_titles": self.kind_titles,
        }

    def do(
        self, request: HttpRequest, verb: str, subjects: Sequence[Subject], data: dict[str, Any]
    ) -> None:
        """Apply the verb to each subject, and report the outcomes as messages."""
        doing, notes = self.verbs[verb], []
        outcomes: dict[str, list[Subject]] = {}
        for subject in subjects:
            status, note = self._do_to(request, verb, subject, data)
            outcomes.setdefault(status, []).append(subject)
            if note:
                notes.append(note)
        for status, those in outcomes.items():
            if sentence := doing.sentence(status):
                messages.add_message(
                    request, doing.level(status), sentence.format(self.named(those))
                )
        for note in notes[:REASONS_SHOWN]:
            messages.error(request, printable(note))

    def _do_to(
        self, request: HttpRequest, verb: str, subject: Subject, data: dict[str, Any]
    ) -> tuple[str, str]:
        if not self.may(request, verb, subject.row):
            return FORBIDDEN, ""
        log = Log(self, request, data["reason"])
        outcome = self.perform(verb, subject, data, log)
        log.outside()
        return outcome


class Log:
    """Writes the admin's log entry, in the transaction of the action where possible."""

    def __init__(self, page: ReadOnlyAdmin, request: HttpRequest, reason: str) -> None:
        self.by = request.user.get_username()
        self.reason = reason
        self._page = page
        self._request = request
        self._later: Callable[[], object] | None = None

    def write(self, row: Model, what: str, *, added: bool = False) -> None:
        """Write the entry; call it in the transaction of the action."""
        because = f"Reason: {self.reason}" if self.reason else "No reason given."
        entry = self._page.log_addition if added else self._page.log_change
        write = partial(entry, self._request, row, f"{what} {because}")
        # An entry in another database would survive a rollback of this transaction.
        database = row._state.db or jobs_database()  # noqa: SLF001 - where it is from
        if router.db_for_write(LogEntry) == database:
            write()
        else:
            self._later = write

    def outside(self) -> None:
        """Write an entry that had to wait; call it after that transaction."""
        if self._later is not None:
            self._later()


# Replaying and discarding dead letters.

_KEY = re.compile(r"[0-9]{1,18}")


class LetterForm(WhyForm):
    """The reason of an action, kept with the dead letter as well."""

    reason = reason_field(
        "Kept with the dead letter, in its history and among the operator events."
    )


REPLAY = Verb(
    label="Replay",
    permission="replay_failedjob",
    note=SafeString(
        "A replay enqueues the same payload again as a <strong>new job</strong> in its old queue, "
        "with no attempts behind it. Each dead letter is replayed once, however often you press."
    ),
    sentences={
        "replayed": "{} replayed as a new job.",
        "already-replayed": "{} had been replayed before; no second job was made.",
        "discarded": "{} had been discarded before and cannot be replayed.",
        "refused": "{} cannot be replayed.",
    },
    done=frozenset({"replayed"}),
    failed=frozenset({"refused"}),
    form=LetterForm,
)
DISCARD = Verb(
    label="Discard",
    permission="discard_failedjob",
    note=SafeString(
        "A discarded dead letter stays on record until it is purged, but it can "
        "<strong>not be replayed</strong> any more."
    ),
    sentences={
        "discarded": "{} discarded.",
        "already-discarded": "{} had been discarded before.",
        "replayed": "{} had been replayed before and cannot be discarded.",
    },
    done=frozenset({"discarded"}),
    danger=True,
    form=LetterForm,
)


class ResolvingAdmin(ActingAdmin):
    """A page with the two verbs for dead letters."""

    as_cards = False
    verbs: ClassVar[dict[str, Verb]] = {"replay": REPLAY, "discard": DISCARD}
    kind_titles = ("Handler", "Queue", "Reason")
    back_field = "filters"
    none_left = "None of these dead letters exists any more."

    def has_replay_permission(self, request: HttpRequest, obj: FailedJob | None = None) -> bool:
        return request.user.has_perm("django_jobs.replay_failedjob")

    def has_discard_permission(self, request: HttpRequest, obj: FailedJob | None = None) -> bool:
        return request.user.has_perm("django_jobs.discard_failedjob")

    def may(self, request: HttpRequest, verb: str, row: FailedJob | None = None) -> bool:
        allowed: Callable[[HttpRequest, FailedJob | None], bool]
        allowed = getattr(self, f"has_{verb}_permission")
        return self.has_view_permission(request, row) and allowed(request, row)

    def subjects(self, request: HttpRequest, ids: Sequence[str]) -> list[Subject]:
        letters = self._letters(request, [name for name in ids if _KEY.fullmatch(name)])
        rows = letters.only("job_id", "handler", "queue", "reason", "resolution")
        return [self.subject_of(row) for row in rows.order_by("pk")]

    def subject_of(self, row: FailedJob) -> Subject:
        """A dead letter as a subject; only open ones are counted."""
        kind = () if row.resolution else (row.handler, row.queue, row.reason)
        return Subject(id=str(row.pk), kind=kind, row=row)

    def question(
        self, request: HttpRequest, verb: str, subjects: Sequence[Subject]
    ) -> dict[str, Any]:
        label = self.verbs[verb].label
        letters = self._letters(request, [subject.id for subject in subjects])
        seen = foresee(letters, verb, MOST_AT_ONCE)
        waiting = sum(1 for subject in subjects if subject.kind)
        resolved, going = len(subjects) - waiting, max(waiting - seen.refused, 0)
        warnings: list[tuple[str, list[tuple[int, str]]]] = []
        if resolved:
            were = "was" if resolved == 1 else "were"
            sentence = f"{resolved} of them {were} resolved before and will be left alone."
            warnings.append((sentence, []))
        if seen.refused:
            sentence = (
                f"{seen.refused} of them cannot be replayed as things are and will be refused:"
            )
            why = [(count, reason) for reason, count in seen.why.most_common(REASONS_SHOWN)]
            warnings.append((sentence, why))
        return {
            "title": f"{label} {self.named(subjects)}?",
            "button": f"{label} {counted(going)}" if going else "",
            "warnings": warnings,
        }

    def named(self, subjects: Sequence[Subject]) -> str:
        return counted(len(subjects))

    def perform(
        self, verb: str, subject: Subject, data: dict[str, Any], log: Log
    ) -> tuple[str, str]:
        edited = data.get("payload")

        def witness(failed: FailedJob, before: str) -> None:
            log.write(failed, _resolved(failed, before, edited=edited is not None))

        home = home_of(subject.row)
        about: dict[str, Any] = {"by": log.by, "reason": log.reason, "witness": witness}
        if verb == "replay":
            return _outcome(replay(subject.row.pk, using=home, edited=edited, **about))
        return _outcome(discard(subject.row.pk, using=home, **about))

    def form_url(self, request: HttpRequest, verb: str, ids: Sequence[str]) -> str:
        return within(self.url_of(verb), self._alias(request))

    def back_from(self, request: HttpRequest) -> str:
        return urlencode(place(self._alias(request)))

    def back_url(self, back: str, ids: Sequence[str]) -> str:
        """The list, narrowed as it was."""
        query = QueryDict(back).urlencode()
        return reverse(f"admin:{self.url_name}_changelist") + (f"?{query}" if query else "")

    def done_url(self, request: HttpRequest, back: str, ids: Sequence[str]) -> str:
        if len(ids) != 1:
            return self.back_url(back, ids)
        page = reverse(f"admin:{self.url_name}_change", args=ids)
        return within(page, self._alias(request))

    def _letters(self, request: HttpRequest, ids: Sequence[str]) -> QuerySet[FailedJob]:
        """Dead letters with all columns: a list defers columns that a verdict needs."""
        letters: QuerySet[FailedJob] = self.get_queryset(request).defer(None)
        return letters.filter(pk__in=[int(number) for number in ids])

    def _alias(self, request: HttpRequest) -> str:
        return self.get_queryset(request).db

    def _page(
        self, request: HttpRequest, template: str, context: dict[str, Any]
    ) -> TemplateResponse:
        """A page beside the list, such as the form of a run."""
        here = urlencode(place(self._alias(request)))
        return self.page_of(request, f"failedjob/{template}", {"here": here, **context})


def _resolved(failed: FailedJob, before: str, *, edited: bool) -> str:
    """The log entry of a dead letter that was resolved."""
    what = failed.resolution.capitalize()
    if failed.replayed_as is not None:
        what = f"{what} as {failed.replayed_as}{' with edited arguments' if edited else ''}"
    return f"{what}; it was {before or 'open'}.{database_note(home_of(failed))}"


def _outcome(answer: Replayed | Discarded) -> tuple[str, str]:
    """The status, and an explanation where the status alone is not enough."""
    # The dead letter was discarded or purged while it was replayed.
    new_id = getattr(answer, "new_id", None)
    crossed = new_id is not None and answer.status in {"discarded", "replayed"}
    if not answer.why or not (crossed or answer.status == "refused"):
        return answer.status, ""
    return answer.status, f"{answer.job_id}: {answer.why}"


def counted(count: int) -> str:
    return ngettext("%d dead letter", "%d dead letters", count) % count
