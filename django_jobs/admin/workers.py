"""Workers: the list, with the state of each, and draining them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin

from django_jobs.admin.actions import (
    ActingAdmin,
    Subject,
    Verb,
    some_ids,
)
from django_jobs.admin.base import (
    all_databases,
    badge,
    moment_cell,
    moment_of,
    two_lines,
)
from django_jobs.backends.home import clock_of
from django_jobs.ids import parse_id
from django_jobs.models import Worker
from django_jobs.operations.workers import WorkerSeen, drain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

    from django_jobs.admin.actions import Log

DRAIN = Verb(
    label="Drain",
    permission="drain_worker",
    note="A worker that drains takes no new job, finishes what it runs, gives back the rest "
    "uncharged and ends with exit code 0. It notices within some seconds. Its process "
    "manager may start it again: systemd does so with Restart=always, not with Restart=on-failure.",
    sentences={
        "asked": "{} asked to drain.",
        "already-asked": "{} had been asked before.",
        "gone": "{} had ended by then.",
    },
    done=frozenset({"asked"}),
)


@admin.register(Worker)
class WorkerAdmin(ActingAdmin):
    """Workers with a recent heartbeat."""

    verbs: ClassVar[dict[str, Verb]] = {"drain": DRAIN}
    kind_titles = ("Worker", "Backend", "Queues")
    actions = ("drain_selected",)
    list_display = ("shown_worker", "state", "queues", "size", "running", "started", "last_seen")
    list_display_links = ("shown_worker",)
    ordering = ("-seen", "id")
    hidden = ("seen",)
    derived = ("state", "last_seen")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        workers: QuerySet[Worker] = super().get_queryset(request)
        return workers.annotate(store_now=clock_of(workers.db).now())

    @admin.display(description="worker")
    def shown_worker(self, worker: Worker) -> str:
        return two_lines(str(worker), worker.backend)

    @admin.display(description="state")
    def state(self, worker: Worker) -> str:
        seen = WorkerSeen(worker=worker, now=getattr(worker, "store_now", worker.seen))
        if not seen.is_present:
            return badge("lost")
        return badge("draining" if worker.draining else "here")

    @admin.display(description="processes")
    def size(self, worker: Worker) -> str:
        each = f" × {worker.concurrency}" if worker.concurrency > 1 else ""
        return f"{worker.processes}{each}" if worker.processes else "in one process"

    @admin.display(description="started")
    def started(self, worker: Worker) -> str:
        return moment_cell(worker.started_at)

    @admin.display(description="seen")
    def last_seen(self, worker: Worker) -> str:
        return moment_cell(moment_of(worker.seen))

    def has_drain_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "drain")

    @admin.action(description="Drain selected workers", permissions=["drain"])
    def drain_selected(self, request: HttpRequest, chosen: QuerySet[Worker]) -> HttpResponse:
        return self.ask(request, "drain", some_ids(chosen))

    def subjects(self, request: HttpRequest, ids: Sequence[str]) -> list[Subject]:
        keys = [key for text in ids if (key := parse_id(text))]
        return [
            Subject(id=str(worker.pk), kind=(str(worker), worker.backend, worker.queues))
            for alias in all_databases()
            for worker in self.get_queryset(request).using(alias).filter(pk__in=keys)
        ]

    def perform(
        self, verb: str, subject: Subject, data: dict[str, Any], log: Log
    ) -> tuple[str, str]:
        def witness(worker: Worker) -> None:
            log.write(worker, "Asked to drain.")

        drained = drain(subject.id, by=log.by, reason=log.reason, witness=witness)
        return drained.status, ""
