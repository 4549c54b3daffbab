"""Queues: pausing, resuming and limiting them while workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Q
from django.utils.html import format_html

from django_jobs.admin.actions import (
    MOST_AT_ONCE,
    ActingAdmin,
    Subject,
    Verb,
    WhyForm,
)
from django_jobs.admin.base import all_databases, badge, jobs_url, moment_cell, two_lines
from django_jobs.admin.payloads import shortened
from django_jobs.backends.limits import UNLIMITED
from django_jobs.backends.rates import Rate
from django_jobs.conf import get_settings
from django_jobs.exceptions import InvalidOption
from django_jobs.models import QueueControl
from django_jobs.operations.queues import MOST_PLACES, limit_queue, pause_queue, resume_queue
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

    from django_jobs.admin.actions import Log


# Forms for the limits of one queue, and of several.

SETTINGS = "settings"
LIMITS = ("rate_limit", "concurrency")


class RateForm(WhyForm):
    """A form with a validated rate limit."""

    field_order = (*LIMITS, "reason")
    rate_limit = forms.CharField(
        required=False,
        max_length=32,
        label="Rate limit",
        help_text="Such as 60/m or 5/s (s, m, h, d). “none”: no limit. "
        "Empty: that of the settings.",
    )

    def clean_rate_limit(self) -> str:
        text = str(self.cleaned_data["rate_limit"]).strip()
        if text not in {"", UNLIMITED}:
            try:
                Rate.parse(text)
            except ValueError as error:
                raise forms.ValidationError(str(error)) from None
        return text


class LimitForm(RateForm):
    """The two limits of one queue."""

    concurrency = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_PLACES,
        label="At a time",
        help_text="How many jobs of this queue may run at once, in all workers together. "
        "Empty: no limit.",
    )


class LimitsForm(RateForm):
    """The limits of several queues; fields left empty keep the limits of each queue."""

    concurrency = forms.CharField(
        required=False,
        max_length=16,
        label="At a time",
        help_text="How many jobs of each queue may run at once. “none”: no limit. "
        "Empty: as it is in each.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["rate_limit"].help_text = (
            "Such as 60/m or 5/s (s, m, h, d). “none”: no limit. “settings”: that of the "
            "settings. Empty: as it is in each."
        )

    def clean_rate_limit(self) -> str:
        if str(self.cleaned_data["rate_limit"]).strip() == SETTINGS:
            return SETTINGS
        return super().clean_rate_limit()

    def clean_concurrency(self) -> int | str | None:
        text = str(self.cleaned_data["concurrency"]).strip()
        if text in {"", UNLIMITED}:
            return text
        places = forms.IntegerField(min_value=0, max_value=MOST_PLACES).clean(text)
        return places if places is None else int(places)

    def clean(self) -> dict[str, Any]:
        """The filled-in fields, with the values that the operation expects."""
        entered = {name: value for name, value in self.cleaned_data.items() if value != ""}
        if not self.errors and not entered.keys() & set(LIMITS):
            raise forms.ValidationError("Say at least one limit.")
        meant: dict[tuple[str, Any], Any] = {
            ("rate_limit", SETTINGS): "",
            ("concurrency", UNLIMITED): None,
        }
        limits = {name: meant.get((name, value), value) for name, value in entered.items()}
        return {"reason": "", **limits}


# The page.

_SAME = "{} changed nothing: it was so already."
_REFUSED = {"refused": "{} refused."}
PAUSE = Verb(
    label="Pause",
    permission="pause_queue",
    note="Nothing more is claimed from a paused queue, by whatever worker, from now on. "
    "What runs is let end, and what is enqueued waits until the queue is resumed.",
    sentences={"done": "{} paused.", "same": _SAME, **_REFUSED},
    done=frozenset({"done"}),
    danger=True,
)
RESUME = Verb(
    label="Resume",
    permission="pause_queue",
    note="Workers go on with what waits in the queue.",
    sentences={"done": "{} resumed.", "same": _SAME, **_REFUSED},
    done=frozenset({"done"}),
)
LIMIT = Verb(
    label="Set the limits",
    permission="limit_queue",
    note="All workers follow within a second; what runs already is let end.",
    sentences={"done": "Limits of {} set.", "same": _SAME, **_REFUSED},
    done=frozenset({"done"}),
    form=LimitForm,
    form_for_several=LimitsForm,
)


@admin.register(QueueControl)
class QueueControlAdmin(ActingAdmin):
    """Queues with settings by operators. The overview has all queues."""

    verbs: ClassVar[dict[str, Verb]] = {"pause": PAUSE, "resume": RESUME, "limit": LIMIT}
    kind_titles = ("Queue", "Backend", "Now", "Rate limit", "At a time")
    actions = ("pause_selected", "resume_selected", "limit_selected")
    list_display = (
        "shown_queue",
        "state",
        "shown_rate",
        "shown_places",
        "shown_reason",
        "changed",
    )
    list_filter = ("paused",)
    ordering = ("queue", "backend")

    @admin.display(description="queue")
    def shown_queue(self, control: QueueControl) -> str:
        return two_lines(control.queue, control.backend)

    @admin.display(description="state")
    def state(self, control: QueueControl) -> str:
        url = jobs_url(control.backend, control.queue)
        jobs = format_html('<a href="{}">live jobs</a>', url) if url else ""
        now = badge("paused" if control.paused else "running")
        return format_html('{} <span class="dj-where">{}</span>', now, jobs)

    @admin.display(description="rate limit")
    def shown_rate(self, control: QueueControl) -> str:
        return rate_of(control)

    @admin.display(description="at a time")
    def shown_places(self, control: QueueControl) -> str:
        return places_of(control)

    @admin.display(description="reason")
    def shown_reason(self, control: QueueControl) -> str:
        return shortened(control.reason) or "–"

    @admin.display(description="changed")
    def changed(self, control: QueueControl) -> str:
        return format_html(
            '{} <span class="dj-where">by {}</span>',
            moment_cell(control.changed_at),
            printable(control.changed_by) or "an unknown user",
        )

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "pause")

    def has_limit_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "limit")

    @admin.action(description="Pause selected queues", permissions=["pause"])
    def pause_selected(self, request: HttpRequest, chosen: QuerySet[QueueControl]) -> HttpResponse:
        return self.ask(request, "pause", _ids(chosen))

    @admin.action(description="Resume selected queues", permissions=["pause"])
    def resume_selected(self, request: HttpRequest, chosen: QuerySet[QueueControl]) -> HttpResponse:
        return self.ask(request, "resume", _ids(chosen))

    @admin.action(description="Limit selected queues", permissions=["limit"])
    def limit_selected(self, request: HttpRequest, chosen: QuerySet[QueueControl]) -> HttpResponse:
        return self.ask(request, "limit", _ids(chosen))

    def subject_id(self, row: QueueControl) -> str:
        return f"{row.backend}/{row.queue}"

    def subjects(self, request: HttpRequest, ids: Sequence[str]) -> list[Subject]:
        """Queues by backend/name, also those without any settings yet."""
        aliases = set(get_settings().backends)
        names = [tuple(text.split("/", 1)) for text in dict.fromkeys(ids) if "/" in text]
        wanted = [(backend, queue) for backend, queue in names if backend in aliases and queue]
        either = Q(pk__in=[])
        for backend, queue in wanted:
            either |= Q(backend=backend, queue=queue)
        rows = {
            (row.backend, row.queue): row
            for alias in all_databases()
            for row in self.get_queryset(request).using(alias).filter(either)
        }
        return [
            _subject(rows.get(name) or QueueControl(backend=name[0], queue=name[1]))
            for name in wanted
        ]

    def perform(
        self, verb: str, subject: Subject, data: dict[str, Any], log: Log
    ) -> tuple[str, str]:
        backend, _, queue = subject.id.partition("/")

        def witness(control: QueueControl) -> None:
            log.write(control, _log_message(verb, control))

        about: dict[str, Any] = {"by": log.by, "reason": log.reason, "witness": witness}
        try:
            if verb == "limit":
                limits = {name: data[name] for name in LIMITS if name in data}
                changed = limit_queue(queue, limits, backend=backend, **about)
            else:
                do = pause_queue if verb == "pause" else resume_queue
                changed = do(queue, backend=backend, **about)
        except InvalidOption as refusal:
            return "refused", printable(f"{queue}: {refusal}")
        return ("done" if changed else "same"), ""


def rate_of(control: QueueControl) -> str:
    """The rate limit in force, and whether it comes from the settings."""
    if control.rate_limit:
        return "no limit" if control.rate_limit == UNLIMITED else printable(control.rate_limit)
    configured = get_settings().queues.get(control.queue)
    text = configured.rate_limit if configured is not None else None
    return f"{text} (settings)" if text else "no limit"


def places_of(control: QueueControl) -> str:
    """How many jobs may run at a time."""
    return "no limit" if control.concurrency is None else str(control.concurrency)


def _log_message(verb: str, control: QueueControl) -> str:
    if verb == "limit":
        rate = control.rate_limit or "as in the settings"
        return f"Limited: rate {rate}, at a time {places_of(control)}."
    return "Paused." if verb == "pause" else "Resumed."


def _ids(chosen: QuerySet[QueueControl]) -> list[str]:
    rows = chosen.values_list("backend", "queue")[: MOST_AT_ONCE + 1]
    return [f"{backend}/{queue}" for backend, queue in rows]


def _subject(control: QueueControl) -> Subject:
    now = "paused" if control.paused else "running"
    return Subject(
        id=f"{control.backend}/{control.queue}",
        kind=(control.queue, control.backend, now, rate_of(control), places_of(control)),
        initial={"rate_limit": printable(control.rate_limit), "concurrency": control.concurrency},
    )
