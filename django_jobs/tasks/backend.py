"""The backend of Django's Tasks: each task becomes a job of the backend it names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django.apps import apps
from django.utils import timezone

from django_jobs import outbox
from django_jobs.backends.base import Inspects, lacking
from django_jobs.backends.registry import backends
from django_jobs.conf import get_settings
from django_jobs.db.transactions import naming_missing_tables
from django_jobs.decorators import JobFunction
from django_jobs.definition import Options, queue_of_tasks
from django_jobs.enqueue import Plan, PreparedJob
from django_jobs.exceptions import JobsError, SettingsError
from django_jobs.handlers.registry import registry
from django_jobs.ids import new_id, parse_id
from django_jobs.tasks import (
    checks,
    declared,
    finder,
    results,
    signals,
)
from django_jobs.tasks.compat import (
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
)
from django_jobs.tasks.task import JobsTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.checks import CheckMessage

    from django_jobs.backends.base import Account, AttemptRecord, Backend
    from django_jobs.handlers.function import FunctionHandler


class _Supports:
    """A flag of Tasks that is true if the job backend has the capability.

    Not a data descriptor, so that a test may set the flag of an instance.
    """

    def __init__(self, capability: str) -> None:
        self.capability = capability

    def __get__(self, backend: JobsBackend | None, _owner: type) -> bool:
        # Tasks may be defined before models can be imported, or with invalid settings. The
        # enqueue checks them again, and the system checks report what is wrong.
        if backend is None or not apps.apps_ready:
            return True
        try:
            return bool(getattr(backend.jobs.capabilities, self.capability))
        except JobsError:
            return True


class JobsBackend(BaseTaskBackend):
    """Tasks as jobs. ``OPTIONS["BACKEND"]`` names one of ``DJANGO_JOBS["BACKENDS"]``.

    Without it tasks go to ``DEFAULT_BACKEND``. There is one instance per thread, and it
    holds nothing but its configuration.
    """

    task_class = JobsTask
    supports_async_task = True
    supports_defer = _Supports("delay")
    supports_priority = _Supports("priority")
    supports_get_result = _Supports("accounts")

    @property
    def jobs_alias(self) -> str:
        """The alias of the backend that carries the jobs."""
        options: Any = self.options
        chosen = options.get("BACKEND") if isinstance(options, Mapping) else None
        return chosen or get_settings().default_backend

    @property
    def jobs(self) -> Backend:
        """The backend that carries the jobs; raises InvalidBackend."""
        return backends[self.jobs_alias]

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask for a task that could not run. ``run_after`` may be relative."""
        judged = task
        if isinstance(task.run_after, timedelta):
            if not self.supports_defer:
                raise InvalidTask("Backend does not support run_after.")
            judged = results.rebuilt_task(task, run_after=None)
        super().validate_task(judged)
        if not isinstance(task.queue_name, str):
            raise InvalidTask(f"queue_name is {task.queue_name!r}; give a text")
        queue = queue_of_tasks(task.queue_name)
        try:
            problem = get_settings().queue_problem(queue)
        except SettingsError:
            return  # reported by the system checks and by the enqueue
        if problem:
            prefix = "" if queue == task.queue_name else f"the queue {task.queue_name!r}: "
            raise InvalidTask(prefix + problem)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a call; part of the caller's transaction on the jobs' database."""
        task = task.task if isinstance(task, JobFunction) else task
        self.validate_task(task)
        made = self._made(task)
        result = results.blank(task, new_id(), self.alias, list(args), kwargs)
        payload = made.handler.payload(tuple(result.args), result.kwargs)
        prepared: PreparedJob[Any] = PreparedJob(result.id, made.plan, payload)
        token = signals.pending.set([(type(self), result)])
        try:
            handle = prepared.enqueue()
            if handle.created:
                signals.send_enqueued()
        finally:
            signals.pending.reset(token)
        if handle.created and not self.jobs.runs_at_enqueue:
            return result
        results.change(result, id=handle.id)
        return self.get_result(handle.id) if self.supports_get_result else result

    def get_result(self, result_id: Any) -> Any:
        """The result of a job of this backend; raises TaskResultDoesNotExist."""
        if not self.supports_get_result:
            return super().get_result(result_id)
        key = parse_id(result_id)
        with naming_missing_tables(self.jobs_alias):
            account = key and (outbox.account(self.jobs_alias, key) or self._account(key))
        result = account and results.rebuilt(account, self.alias, declared.loaded(account.handler))
        if not result:
            raise TaskResultDoesNotExist(result_id)
        return result

    def attempts_of(self, job_id: str) -> tuple[AttemptRecord, ...]:
        """The failed runs of a job that the backend keeps."""
        if not self.jobs.capabilities.accounts:
            return ()
        account = self._account(job_id)
        return account.attempts if account else ()

    def _account(self, job_id: str) -> Account | None:
        if not isinstance(self.jobs, Inspects):
            raise lacking(self.jobs, "account for jobs", job_id)
        return self.jobs.account(job_id)

    def check(self, **_kwargs: Any) -> Iterator[CheckMessage]:  # type: ignore[override]  # an iterable is all Django asks for
        """System checks of this alias of TASKS."""
        return checks.check_alias(self.alias, self.options, self.queues)

    def _made(self, task: Any) -> _Made:
        """The handler and the plan for a task's jobs; cached with the task."""
        where = (self.jobs_alias, self.alias)
        memo: _Made | None = getattr(task, "_made", None)
        if memo and memo.where == where and registry.get(memo.handler.key) is memo.handler:
            return memo
        finder.register(task)
        handler: Any = registry.find(finder.key_of(task))
        runs_here = self.jobs.ends_with_process or self.jobs.runs_at_enqueue
        if not runs_here and (problem := finder.why_not_found(handler)):
            raise InvalidTask(problem)
        call: Any = (queue_of_tasks(task.queue_name), int(task.priority), task.run_after)
        if not isinstance(task, JobsTask):
            return _Made(where, handler, _plan_of(handler.key, *where, *call))
        made = _Made(where, handler, Plan(handler.key, _options(task.options, *where, *call)))
        object.__setattr__(task, "_made", made)
        return made


class _Made(NamedTuple):
    """The handler and the plan of a task for one alias of TASKS."""

    where: tuple[str, str]
    handler: FunctionHandler
    plan: Plan


@lru_cache(maxsize=256)
def _plan_of(key: str, jobs_alias: str, alias: str, *call: Any) -> Plan:
    return Plan(key, _options(Options(), jobs_alias, alias, *call))


def _options(
    options: Options,
    jobs_alias: str,
    alias: str,
    queue: str,
    priority: int,
    run_after: datetime | timedelta | None,
) -> Options:
    """The options of the job that a task becomes."""
    values: dict[str, Any] = {"queue": queue, "backend": jobs_alias, "priority": priority}
    if isinstance(run_after, timedelta):
        values["delay"] = run_after
    elif run_after is not None:
        aware = timezone.is_aware(run_after)
        values["run_at"] = run_after if aware else timezone.make_aware(run_after)
    return options.using(**values, **results.alias_in_meta(alias, options))
