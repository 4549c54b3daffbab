"""Move waiting tasks from another backend's table to ours, keeping their ids.

Those tables have no signatures. The moved tasks are signed here as the rows have them: nothing
verifies the task and its arguments. A row must still name a task of this site that its queue
allows.

Only waiting rows are moved; running and ended ones stay. If both tables share a database, a row
is deleted in the transaction that enqueues its job. Otherwise, as with a broker, it is deleted
after the job was enqueued: a repeated import then finds the job by its id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.apps.registry import Apps
from django.db import connections, models, router, transaction
from django.utils import timezone

from django_jobs.definition import queue_of_tasks
from django_jobs.enqueue import Plan, PreparedJob, enqueue_many
from django_jobs.exceptions import InvalidJob, UnknownHandler
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import registry
from django_jobs.routes import way
from django_jobs.tasks import finder, results
from django_jobs.tasks.backend import JobsBackend
from django_jobs.tasks.compat import DEFAULT_TASK_BACKEND_ALIAS, task_backends
from django_jobs.tasks.handler import TaskHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from django_jobs.definition import Options

AT_ONCE = 200
NEVER_BEFORE = 9999
READY, RUNNING = "READY", "RUNNING"


class _Foreign(models.Model):
    """The columns that both tables have. They belong to other apps: we have no migrations."""

    id = models.UUIDField(primary_key=True)
    task_path = models.TextField()
    queue_name = models.TextField()
    priority = models.IntegerField()
    status = models.TextField()
    enqueued_at = models.DateTimeField()
    run_after = models.DateTimeField(null=True)

    class Meta:
        abstract = True


class TasksDbRow(_Foreign):
    """A task of django-tasks-db."""

    args_kwargs = models.JSONField()

    class Meta:
        apps = Apps()
        app_label = "django_tasks_database"
        managed = False
        db_table = "django_tasks_database_dbtaskresult"

    def __str__(self) -> str:
        return f"{self.task_path} {self.pk}"

    @property
    def call(self) -> Mapping[str, Any]:
        return {name: self.args_kwargs[name] for name in ("args", "kwargs")}

    @property
    def retries(self) -> int | None:
        """None: that backend has no retries, so the options of the task apply."""
        return None


class OxRow(_Foreign):
    """A task of django-ox."""

    args = models.JSONField()
    kwargs = models.JSONField()
    attempts = models.IntegerField()
    max_attempts = models.IntegerField()

    class Meta:
        apps = Apps()
        app_label = "django_ox"
        managed = False
        db_table = "django_ox_oxtask"

    def __str__(self) -> str:
        return f"{self.task_path} {self.pk}"

    @property
    def call(self) -> Mapping[str, Any]:
        return {"args": self.args, "kwargs": self.kwargs}

    @property
    def retries(self) -> int | None:
        """The retries that are left; ``max_attempts`` counts the first run too."""
        return max(self.max_attempts - self.attempts - 1, 0)


SOURCES: Mapping[str, type[_Foreign]] = {"django-tasks-db": TasksDbRow, "django-ox": OxRow}


@dataclass(slots=True)
class MovedJobs:
    """The outcome of an import."""

    moved: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    running: int = 0
    refused: list[dict[str, str]] = field(default_factory=list)


def waiting_ids(source: str, using: str | None = None) -> list[Any]:
    """The ids of the waiting tasks, in the order of their enqueue."""
    return list(_rows(source, using).filter(status=READY).values_list("pk", flat=True))


def place_of(source: str, using: str | None = None) -> tuple[str, str]:
    """The table of a source, and the alias of its database."""
    return SOURCES[source]._meta.db_table, _alias(source, using)


def move(
    source: str,
    *,
    backend: str | None = None,
    using: str | None = None,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda _count: None,
) -> MovedJobs:
    """Move the waiting tasks of a source to a backend; tasks that are refused stay there."""
    done = MovedJobs(running=_rows(source, using).filter(status=RUNNING).count())
    ids = waiting_ids(source, using)
    alias = _alias(source, using)
    for start in range(0, len(ids), AT_ONCE):
        chunk = _rows(source, using).filter(pk__in=ids[start : start + AT_ONCE], status=READY)
        # Durable: in a transaction of the caller, a broker would get the jobs only after the
        # commit, and thus after the deletion of their rows.
        with transaction.atomic(using=alias, durable=True):
            prepared = _prepared_of(chunk, backend, done)
            pushed = {job.id for job in prepared if _is_pushed_after(alias, job)}
            _hand_over([job for job in prepared if job.id not in pushed], chunk, dry_run=dry_run)
        _hand_over([job for job in prepared if job.id in pushed], chunk, dry_run=dry_run)
        done.moved += len(prepared)
        for job in prepared:
            done.tasks[job.plan.handler] = done.tasks.get(job.plan.handler, 0) + 1
        progress(len(ids[start : start + AT_ONCE]))
    return done


def _prepared_of(waiting: Any, backend: str | None, done: MovedJobs) -> list[PreparedJob[Any]]:
    features = connections[waiting.db].features
    # A locked row is being claimed by a worker of the other backend.
    locked = waiting.select_for_update(skip_locked=features.has_select_for_update_skip_locked)
    prepared: list[PreparedJob[Any]] = []
    for row in locked:
        try:
            prepared.append(_prepared(row, backend))
        except InvalidJob as error:
            done.refused.append({"id": str(row.pk), "task": row.task_path, "why": str(error)})
    return prepared


def _is_pushed_after(alias: str, job: PreparedJob[Any]) -> bool:
    """Whether a job is pushed to its backend only after a commit in this database.

    That commit would delete its row first, and a crash before the push would lose the task.
    """
    backend, seal, settings = job.plan.resolve()
    route = way(settings, backend, seal.terms.queue)
    return route.outbox is None and route.after == alias


def _hand_over(jobs: Sequence[PreparedJob[Any]], waiting: Any, *, dry_run: bool) -> None:
    if jobs and not dry_run:
        enqueue_many(jobs)
        waiting.filter(pk__in=[job.id for job in jobs]).delete()


def _prepared(row: Any, backend: str | None) -> PreparedJob[Any]:
    """The job of a row, with the row's id; raises InvalidJob if it cannot run here."""
    handler = registry.get(row.task_path) or finder.find(row.task_path)
    if not isinstance(handler, FunctionHandler):
        raise UnknownHandler(
            f"{row.task_path} is no task of this site: nothing registers it, and it is neither in "
            "the modules tasks and jobs of installed apps nor in one of TASK_MODULES"
        )
    if problem := finder.why_not_found(handler):
        raise UnknownHandler(problem)
    call = row.call
    payload = handler.payload(tuple(call["args"]), dict(call["kwargs"]))
    plan = Plan(handler.key, _options(handler, row, backend))
    plan.resolve()
    # An earlier import may have enqueued it already; then it may even have ended.
    return PreparedJob(str(row.pk), plan, payload, tried=True)


def _options(handler: FunctionHandler, row: Any, backend: str | None) -> Options:
    options: dict[str, Any] = {"queue": queue_of_tasks(row.queue_name), "priority": row.priority}
    if isinstance(handler, TaskHandler):
        options |= _where(handler.task.backend, handler.options)
    if backend is not None:
        options["backend"] = backend
    if row.retries is not None:
        options["max_retries"] = row.retries
    # This keeps the order of the other backend.
    return handler.options.using(**options, run_at=_aware(_due(row)))


def _where(alias: str, options: Options) -> dict[str, Any]:
    """The options for the backend of an alias in TASKS, where its results are looked up."""
    for name in (alias, DEFAULT_TASK_BACKEND_ALIAS):
        if name not in task_backends:
            continue  # the task may still name the alias of the other backend
        if isinstance(backend := task_backends[name], JobsBackend):
            return {"backend": backend.jobs_alias, **results.alias_in_meta(name, options)}
    return {}


def _due(row: Any) -> datetime:
    later = row.run_after is not None and row.run_after.year < NEVER_BEFORE
    return row.run_after if later else row.enqueued_at  # type: ignore[no-any-return]  # a DateTimeField


def _aware(moment: datetime) -> datetime:
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _rows(source: str, using: str | None) -> Any:
    rows = SOURCES[source]._base_manager.using(_alias(source, using))
    return rows.order_by("enqueued_at", "pk")


def _alias(source: str, using: str | None) -> str:
    return using or router.db_for_write(SOURCES[source])
