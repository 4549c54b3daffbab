"""Django's task signals, sent so that a failing receiver affects neither task nor caller."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django_jobs.execution.attempt import StopNow
from django_jobs.handlers.base import JobTimeout
from django_jobs.tasks.compat import signals
from django_jobs.telemetry.events import TaskReceiverFailed, emit

if TYPE_CHECKING:
    from django.dispatch import Signal

task_enqueued, task_started, task_finished = (
    signals.task_enqueued,
    signals.task_started,
    signals.task_finished,
)

pending: ContextVar[list[tuple[type, Any]]] = ContextVar("django_jobs_task_pending")
"""The sender and result of the enqueue in progress; empty after its signal was sent.

A list, because a task that runs inside its enqueue has a copy of the context.
"""


def send_in_run(signal: Signal, sender: type, result: Any) -> None:
    """Send a signal during a run. Errors of receivers are logged, by Django or here."""
    try:
        signal.send_robust(sender=sender, task_result=result)
    except (StopNow, JobTimeout):
        raise
    except BaseException as error:  # noqa: BLE001 - also SystemExit of a receiver
        emit(TaskReceiverFailed(task_id=result.id, error=error))


def send_enqueued(job_id: str | None = None) -> None:
    """Send the signal of the enqueue in progress, once: before its task if that runs inside it."""
    waiting = pending.get([])
    if not waiting or (job_id is not None and waiting[0][1].id != job_id):
        return
    sender, result = waiting.pop()
    task_enqueued.send_robust(sender=sender, task_result=result)
