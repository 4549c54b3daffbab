"""The Task behind a key, as the code declares it. Nothing is imported for it."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django_jobs.definition import Options
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.registry import registry
from django_jobs.tasks import results
from django_jobs.tasks.compat import DEFAULT_TASK_BACKEND_ALIAS, DEFAULT_TASK_QUEUE_NAME, Task
from django_jobs.tasks.handler import TaskHandler
from django_jobs.tasks.task import JobsTask

if TYPE_CHECKING:
    from django_jobs.decorators import JobFunction

_TOLD_OTHERWISE = {"queue": None, "backend": None, "name": None, "delay": None, "run_at": None}


def task_of_job(job: JobFunction[..., Any, Any]) -> JobsTask[..., Any]:
    """A ``@job`` function as a task: the same handler and options, in Django's words."""
    options = job.options
    delay = None if options.delay is None else timedelta(seconds=options.delay)
    return JobsTask(
        func=job.function,
        key=job.key,
        priority=options.priority,
        queue_name=options.queue or DEFAULT_TASK_QUEUE_NAME,
        run_after=options.run_at or delay,
        takes_context=job.handler.takes_context,
        options=options.using(**_TOLD_OTHERWISE, priority=0),
    )


def loaded(key: str) -> Any | None:
    """The task of a key among what this process has imported anyway, or None."""
    known = registry.get(key)
    if isinstance(known, TaskHandler):
        return known.task
    if isinstance(known, FunctionHandler):
        return _of_handler(known)
    module, _, name = key.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, Task) else None


def _of_handler(handler: FunctionHandler) -> Any:
    """The task of a job, for a result to show: not validated, since it is not to be enqueued."""
    told = object.__new__(JobsTask)
    results.change(
        told,
        func=handler.function,
        priority=0,
        backend=DEFAULT_TASK_BACKEND_ALIAS,
        queue_name=DEFAULT_TASK_QUEUE_NAME,
        run_after=None,
        takes_context=handler.takes_context,
        key=handler.key,
        options=Options(),
        conduct=None,
    )
    return told
