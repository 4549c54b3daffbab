"""Live jobs: the list, the page of each, and cancelling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.timezone import is_aware, make_aware

from django_jobs.admin import broker_jobs
from django_jobs.admin.actions import (
    ActingAdmin,
    Subject,
    Verb,
    some_ids,
)
from django_jobs.admin.base import (
    DetailAdmin,
    all_databases,
    badge,
    handler_cell,
    may_view_payload,
    moment_cell,
    moment_of,
    recent_values,
)
from django_jobs.admin.broker_jobs import BrokerJobsAdmin
from django_jobs.admin.payloads import meta_of, payload_of
from django_jobs.admin.records import OfAJob, is_kept, with_a_broker
from django_jobs.backends.database.counts import keys_of_suspects
from django_jobs.backends.database.unreadable import is_of_a_row, of_known_kinds
from django_jobs.backends.database.wait import all_queues
from django_jobs.backends.home import jobs_database
from django_jobs.clock import from_datetime
from django_jobs.db.clock import for_people
from django_jobs.ids import parse_id
from django_jobs.models import Job, JobAttempt, JobState
from django_jobs.operations.cancel import cancel_or_ask_to_stop
from django_jobs.operations.explain import explain, explain_row
from django_jobs.operations.overview import SUSPECTS_AT_MOST, live
from django_jobs.texts import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.db.models import QuerySet
    from django.http import HttpRequest

    from django_jobs.admin.actions import Log

ATTEMPTS_SHOWN = 50
FEW = 2_000
CANCEL = Verb(
    label="Cancel or stop",
    permission="cancel_job",
    note="A job that waits is cancelled: it ends here, and is kept as a result. A job that runs "
    "is asked to stop: its handler sees context.cancelled, and one that does not react within "
    "KILL_GRACE has its process stopped. Neither is retried. To have the work done after all, "
    "enqueue it again.",
    sentences={
        "cancelled": "{} cancelled.",
        "asked": "{} asked to stop.",
        "already-asked": "{} had been asked to stop before.",
        "moving": "{} on the way from the outbox to the backend just now; try again.",
        "gone": "{} had ended by then.",
    },
    done=frozenset({"cancelled", "asked"}),
    danger=True,
)


class StateFilter(admin.SimpleListFilter):
    """Filters by state, and by being a suspect."""

    title = "state"
    parameter_name = "state"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        states = [(state.label, state.label.capitalize()) for state in JobState]
        return [*states, ("suspect", "Suspect")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        value = self.value()
        states = {state.label: state for state in JobState}
        if value == "suspect":
            return queryset.filter(pk__in=keys_of_suspects(queryset.db, SUSPECTS_AT_MOST))
        if value not in states:
            return queryset
        few = _few_in(states[value], queryset.db)
        return queryset.filter(state=states[value]) if few is None else queryset.filter(pk__in=few)


def _few_in(state: JobState, alias: str) -> list[Any] | None:
    """Keys of all jobs in a state, or None for more than a few.

    The list is ordered by key, latest first. If a state is rare among millions of jobs, the
    database would read all the other rows to find the next job in that state.
    """
    keys: list[Any] = []
    for name in all_queues(alias):
        jobs = live(name, using=alias).filter(state=state)
        keys += jobs.values_list("pk", flat=True)[: FEW + 1 - len(keys)]
        if len(keys) > FEW:
            return None
    return keys


@admin.register(Job)
class JobAdmin(DetailAdmin, ActingAdmin, BrokerJobsAdmin, OfAJob):
    """The jobs that have not ended."""

    id_field = "pk"
    detail_page = "job/detail.html"
    verbs: ClassVar[dict[str, Verb]] = {"cancel": CANCEL}
    kind_titles = ("State", "Handler", "Queue")
    actions = ("cancel_selected",)
    list_display = (
        "shown_handler",
        "queue",
        "shown_state",
        "shown_priority",
        "due_when",
        "attempts",
    )
    list_filter = (StateFilter, recent_values("queue"), recent_values("handler"))
    ordering = ("-id",)
    search_fields = ("id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        match = request.resolver_match
        jobs: QuerySet[Job] = super().get_queryset(request)
        in_a_list = match is None or not str(match.url_name).endswith("_change")
        jobs = of_known_kinds(jobs)
        unread = (
            ("body", "signature", "meta", "created_at") if in_a_list else ("meta", "created_at")
        )
        return jobs.defer(*unread)

    @admin.display(description="state")
    def shown_state(self, job: Job) -> str:
        worker = job.worker if job.state == JobState.RUNNING else ""
        return format_html(
            '{} <span class="dj-where">{}</span>', state_badge(job), printable(worker or "")
        )

    @admin.display(description="priority")
    def shown_priority(self, job: Job) -> int:
        return job.priority

    @admin.display(description="due")
    def due_when(self, job: Job) -> str:
        return moment_cell(moment_of(job.due))

    @admin.display(description="handler")
    def shown_handler(self, row: Job) -> str:
        return handler_cell(row.handler)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "cancel")

    @admin.action(description="Cancel or stop selected jobs", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, chosen: QuerySet[Job]) -> HttpResponse:
        return self.ask(request, "cancel", some_ids(chosen))

    def subjects(self, request: HttpRequest, ids: Sequence[str]) -> list[Subject]:
        keys = list(dict.fromkeys(key for text in ids if (key := parse_id(text))))
        rows = [
            job
            for alias in all_databases()
            for job in self.get_queryset(request).using(alias).filter(pk__in=keys).order_by("pk")
        ]
        there = {str(job.pk) for job in rows}
        rows += [job for key in keys if key not in there and (job := broker_jobs.live_job(key))]
        return [
            Subject(
                id=str(job.pk),
                kind=(JobState.label_of(job.state), job.handler, job.queue),
                database=job._state.db or "",  # noqa: SLF001 - none for a job of a broker
            )
            for job in rows
        ]

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Job | None:
        key = parse_id(object_id)
        try:
            row: Job | None = super().get_object(request, object_id, from_field)
        except Exception as error:
            if not is_of_a_row(error):
                raise
            return None
        if row is not None and not of_known_kinds(_same(row)).exists():
            return None  # unreadable: a worker turns it into a dead letter
        return row or (broker_jobs.live_job(key) if key else None)

    def not_there(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Redirect to the result of a job that has ended in the meantime."""
        key = parse_id(unquote(object_id))
        seen = key and request.user.has_perm("django_jobs.view_jobresult")
        if key and seen and (is_kept(key) or with_a_broker(key)):
            page = reverse("admin:django_jobs_jobresult_change", args=[key])
            return HttpResponseRedirect(page)
        return super().not_there(request, object_id)

    def perform(
        self, verb: str, subject: Subject, data: dict[str, Any], log: Log
    ) -> tuple[str, str]:
        state, handler, _ = subject.kind
        del state

        def witness(status: str) -> None:
            what = "Cancelled." if status == "cancelled" else "Asked to stop."
            job = Job(pk=subject.id, handler=handler)
            job._state.db = subject.database or None  # noqa: SLF001 - as if it were read
            log.write(job, what)

        result = cancel_or_ask_to_stop(subject.id, by=log.by, reason=log.reason, witness=witness)
        return result.status, ""

    def detail(self, request: HttpRequest, job: Job) -> dict[str, Any]:
        """Why the job is not running, its payload, and its attempts so far."""
        may_view = may_view_payload(request.user)
        database = job._state.db  # noqa: SLF001 - none for a job of a broker
        attempts = JobAttempt.objects.using(database or jobs_database()).filter(job_id=job.pk)
        return {
            "original": job.name or job.handler,
            "title": job.name or job.handler,
            "job": job,
            "state": state_badge(job),
            "explanation": explain_row(job, database) if database else explain(str(job.pk)),
            "created": _created(job),
            "due": moment_of(job.due),
            "leased": moment_of(job.leased_at) if job.state == JobState.RUNNING else None,
            "lease_ends": moment_of(job.lease_expires),
            "expires": moment_of(job.expires),
            "may_view_payload": may_view,
            "payload": payload_of(job.body) if may_view else None,
            "meta": meta_of(job.body) if may_view else "",
            "attempts": attempts.order_by("number", "pk")[:ATTEMPTS_SHOWN],
            "may_cancel": self.may(request, "cancel"),
        }


def _same(row: Job) -> QuerySet[Job]:
    return Job.objects.using(row._state.db).filter(pk=row.pk)  # noqa: SLF001 - where it was read


def _created(job: Job) -> datetime | None:
    """When a job was enqueued; None if the column holds no valid moment."""
    try:
        moment: Any = job.created_at
    except Exception as error:
        if not is_of_a_row(error):
            raise
        return None
    if moment is None:
        return None
    return for_people(from_datetime(moment if is_aware(moment) else make_aware(moment)))


def state_badge(job: Job) -> str:
    """Badges with the state of a live job, and with being a suspect or asked to stop."""
    extras = [
        badge(word)
        for word, holds in (("suspect", job.suspect), ("stopping", job.cancel_requested))
        if holds
    ]
    shown = badge(JobState.label_of(job.state))
    for extra in extras:
        shown += extra
    return shown
