"""Tasks of ``@job`` functions, and the Task of a key, without importing anything."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django_jobs.conf import get_settings
from django_jobs.definition import Options, name_among_tasks
from django_jobs.exceptions import InvalidJob
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import registry
from django_jobs.tasks import results
from django_jobs.tasks.compat import DEFAULT_TASK_BACKEND_ALIAS as _DEFAULT
from django_jobs.tasks.compat import DEFAULT_TASK_QUEUE_NAME, Task, task_backends
from django_jobs.tasks.handler import TaskHandler
from django_jobs.tasks.task import JobsTask

if TYPE_CHECKING:
    from django_jobs.decorators import JobFunction

_PASSED_TO_DJANGO = {"queue": None, "backend": None, "name": None, "delay": None, "run_at": None}


def task_of_job(job: JobFunction[..., Any, Any]) -> JobsTask[..., Any]:
    """A ``@job`` function as a task: the same handler and options, in Django's words.

    It goes where the job goes. Raises InvalidJob where no alias of TASKS leads there.
    """
    alias = _alias_of(job.options)
    if job.made_task is None or job.made_task.backend != alias:
        job.made_task = _made(job, alias)
    made: JobsTask[..., Any] = job.made_task
    return made


def _alias_of(options: Options) -> str:
    queue = options.queue or DEFAULT_TASK_QUEUE_NAME
    home = options.backend or get_settings().backend_for(queue)
    carriers = {alias: task_backends[alias] for alias in task_backends}
    leading = [
        name for name, carrier in carriers.items() if getattr(carrier, "jobs_alias", None) == home
    ]
    # Prefer an alias that takes tasks of the queue; if none does, Django raises an error.
    leading.sort(key=lambda name: (not _takes(carriers[name], queue), name != _DEFAULT))
    if leading:
        return leading[0]
    if not hasattr(carriers[_DEFAULT], "jobs_alias"):
        return _DEFAULT  # TASKS leads to another backend, as in tests: no job is made
    raise InvalidJob(
        f"the job goes to the backend {home!r}, and no alias of TASKS leads there; add one with "
        f'"OPTIONS": {{"BACKEND": "{home}"}}, or enqueue the job itself'
    )


def _takes(carrier: Any, queue: str) -> bool:
    return not carrier.queues or name_among_tasks(queue) in carrier.queues


def _made(job: JobFunction[..., Any, Any], alias: str) -> JobsTask[..., Any]:
    options = job.options
    delay = None if options.delay is None else timedelta(seconds=options.delay)
    return JobsTask(
        func=job.function,
        key=job.key,
        backend=alias,
        priority=options.priority,
        queue_name=name_among_tasks(options.queue or DEFAULT_TASK_QUEUE_NAME),
        run_after=options.run_at or delay,
        takes_context=job.handler.takes_context,
        options=options.using(**_PASSED_TO_DJANGO, priority=0),
    )


def loaded(key: str) -> Any | None:
    """The task of a key if this process has imported it already, or None."""
    handler = registry.get(key)
    if isinstance(handler, TaskHandler):
        return handler.task
    if isinstance(handler, FunctionHandler):
        return _task_of_handler(handler)
    module, _, name = key.rpartition(".")
    value = getattr(sys.modules.get(module), name, None)
    return value if isinstance(value, Task) else None


def _task_of_handler(handler: FunctionHandler) -> Any:
    """The task of a job, for a result to show. Not validated: it is never enqueued."""
    task = object.__new__(JobsTask)
    results.change(
        task,
        func=handler.function,
        priority=0,
        backend=_DEFAULT,
        queue_name=DEFAULT_TASK_QUEUE_NAME,
        run_after=None,
        takes_context=handler.takes_context,
        key=handler.key,
        options=Options(),
        conduct=None,
    )
    return task
