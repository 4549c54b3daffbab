"""A task as a handler, with the signals and results that Django's Tasks promise.

The handler's hooks send the signals of start and end: hooks are called outside of any event
loop, and the second one while the exception is still being handled, so that receivers find it in
``sys.exc_info()``.
"""

from __future__ import annotations

from asyncio import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.apps import apps

from django_jobs.definition import Options
from django_jobs.execution.attempt import StopNow
from django_jobs.execution.errors import error_text
from django_jobs.execution.return_value import Encoded, encoded_value
from django_jobs.handlers.base import Cancel, Conduct, JobTimeout, Retry, Snooze
from django_jobs.handlers.function import FunctionHandler
from django_jobs.tasks import results, signals
from django_jobs.tasks.compat import TaskContext, TaskResultStatus, normalize_json

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from django_jobs.handlers.base import JobContext


# A coroutine that is cancelled from outside may have to run again; that is decided later.
_NO_END = (StopNow, Snooze, CancelledError)

IN_DJANGOS_WORDS = {
    "queue": "queue_name=",
    "delay": "run_after= with a timedelta",
    "run_at": "run_after=",
    "name": "nothing: a task is named after its function",
}
"""Options of a job for which Tasks have their own names."""


class TaskHandler(FunctionHandler):
    """Runs the function of a Task."""

    is_task = True

    def __init__(self, key: str, task: Any) -> None:
        super().__init__(
            key,
            task.func,
            takes_context=task.takes_context,
            conduct=getattr(task, "conduct", Conduct()),
            options=getattr(task, "options", Options()),
        )
        self.task = task
        self.known_from_start = not apps.ready
        self.before, self.after = self._begin, self._end
        self._running: dict[str, results.Running] = {}

    def way_to_give(self, option: str) -> str:
        words = IN_DJANGOS_WORDS.get(option, f"{option}=")
        return f"an option of a task goes into using(…).enqueue(…): use {words}"

    def handle(self, context: JobContext) -> Any:
        running = self._running.get(context.id) or results.running(self.task, context)
        args, kwargs = context.payload["args"], context.payload["kwargs"]
        if self.takes_context:
            args = [TaskContext(task_result=running.result), *args]
        returned = self.function(*args, **kwargs)
        if self.is_coroutine:
            return self._awaited(returned, running)
        return _kept(returned, running)

    async def _awaited(self, returned: Awaitable[Any], running: results.Running) -> Encoded:
        return _kept(await returned, running)

    def _begin(self, context: JobContext) -> None:
        running = self._running[context.id] = results.running(self.task, context)
        signals.send_enqueued(context.id)
        signals.send_in_run(signals.task_started, running.sender, running.result)

    def _end(self, context: JobContext, error: BaseException | None) -> None:
        running = self._running.pop(context.id, None)
        if running is None:
            return
        if error is None:
            running.finish(TaskResultStatus.SUCCESSFUL)
        elif isinstance(error, _NO_END) or not self._is_final(context, error):
            return
        else:
            running.fail(error_text(error))
        signals.send_in_run(signals.task_finished, running.sender, running.result)

    def _is_final(self, context: JobContext, error: BaseException) -> bool:
        """Whether no attempt follows, as far as is known before the outcome."""
        if isinstance(error, Cancel) or (self.discard_on and isinstance(error, self.discard_on)):
            return True
        if self.retry_on and not isinstance(error, (Retry, JobTimeout, *self.retry_on)):
            return True
        return context.attempt > context.max_retries


def _kept(returned: Any, running: results.Running) -> Encoded:
    """The return value in the form that Django's Tasks give it.

    A value without such a form is encoded as that of any job: the work is done, so the task
    does not fail.
    """
    with suppress(Exception):  # methods of the value may raise anything
        returned = normalize_json(returned)
    encoded = encoded_value(returned)
    running.returned(results.NotKept(encoded.note) if encoded.note else returned)
    return encoded
