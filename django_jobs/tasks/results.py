"""Task results: made for a run that begins, and rebuilt from a store.

Rebuilding validates nothing: a queue that is no longer served, or a function that is gone, must
not make an old result unreadable.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils import timezone

from django_jobs.backends.values import why_not_kept
from django_jobs.clock import to_datetime
from django_jobs.definition import name_among_tasks
from django_jobs.exceptions import ResultNotKept
from django_jobs.ids import process_name
from django_jobs.tasks.compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    Task,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_backends,
)
from django_jobs.telemetry.events import AttemptsUnreadable, emit

if TYPE_CHECKING:
    from django_jobs.backends.base import Account, AttemptRecord
    from django_jobs.definition import Options
    from django_jobs.handlers.base import JobContext
    from django_jobs.outcome import ErrorText
    from django_jobs.tasks.backend import JobsBackend
    from django_jobs.wire.envelope import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTaskError(TaskError):  # type: ignore[misc]  # the stubs forget that it is frozen
    """A TaskError that also finds classes inside of classes, as ``Order.DoesNotExist`` is."""

    @property
    def exception_class(self) -> type[BaseException]:
        try:
            error_class: type[BaseException] = TaskError.exception_class.fget(self)  # type: ignore[attr-defined]  # a property
        except ImportError:
            nested = _nested(self.exception_class_path)
            if nested is None:
                raise
            return nested
        return error_class


def task_error(error_type: str, traceback: str) -> JobsTaskError:
    """An error as Tasks show it; our texts leave out the module of built-in exceptions."""
    path = error_type if "." in error_type else f"builtins.{error_type}"
    return JobsTaskError(exception_class_path=path, traceback=traceback)


def _nested(path: str) -> type[BaseException] | None:
    """An exception class nested in a class of a loaded module, or None."""
    parts = path.split(".")
    for cut in range(len(parts) - 2, 0, -1):
        value: Any = sys.modules.get(".".join(parts[:cut]))
        for name in parts[cut:]:
            value = getattr(value, name, None)
        if isinstance(value, type) and issubclass(value, BaseException):
            return value
    return None


ALIAS_IN_META = "task_backend"
"""The key in ``meta`` for the alias of TASKS that enqueued the job, unless it is the default."""

UNKNOWN_WORKER = "unknown"
_VERSION_AT = 14
_KINDS: dict[str, Any] = {"meta": dict, "priority": int, "schedule": int, "delay": (int, float)}
_STATUS = {
    "scheduled": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "ready": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "skipped": TaskResultStatus.SUCCESSFUL,
}


class NotKept(str):
    """Stands in for a return value that could not be kept; the text says why."""

    __slots__ = ()


class JobsTaskResult(TaskResult):  # type: ignore[type-arg]  # generic for type checkers only
    """A TaskResult that raises ResultNotKept for a return value that could not be kept."""

    __slots__ = ()

    @property
    def return_value(self) -> Any:
        """What the function returned; raises ResultNotKept, a ValueError, where it is not kept."""
        value = TaskResult.return_value.fget(self)  # type: ignore[attr-defined]  # a property
        if isinstance(value, NotKept):
            raise ResultNotKept(self.id, str(value))
        return value


def blank(task: Any, job_id: str, alias: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a task that waits for its first run; raises TypeError if not JSON."""
    return JobsTaskResult(
        task=task,
        id=job_id,
        status=TaskResultStatus.READY,
        enqueued_at=enqueued_at(job_id),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def change(result: Any, **values: Any) -> None:
    """Set attributes of a result, which is frozen for its users."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


# Results of runs that begin.


@dataclass(frozen=True, slots=True)
class Running:
    """The result of a running task, as the task itself and the signals see it."""

    result: Any
    sender: type

    def returned(self, value: Any) -> None:
        change(self.result, _return_value=value)

    def fail(self, error: ErrorText) -> None:
        change(self.result, _return_value=None)
        self.result.errors.append(task_error(error.type, error.traceback))
        self.finish(TaskResultStatus.FAILED)

    def finish(self, status: TaskResultStatus) -> None:
        change(self.result, status=status, finished_at=_now())


def alias_in_meta(alias: str, options: Options) -> dict[str, Any]:
    """The job option that records the alias of TASKS through which it was enqueued."""
    if alias == DEFAULT_TASK_BACKEND_ALIAS:
        return {}
    return {"meta": {**(options.meta or {}), ALIAS_IN_META: alias}}


def running(task: Any, context: JobContext) -> Running:
    """The result of a run that begins now."""
    alias = context.meta.get(ALIAS_IN_META, DEFAULT_TASK_BACKEND_ALIAS)
    backend, sender = _backend_of(alias)
    payload = context.payload
    queue = name_among_tasks(context.queue)
    task_of_run = rebuilt_task(task, backend=alias, queue_name=queue, **_sealed(context.terms))
    result = blank(task_of_run, context.id, alias, payload["args"], payload["kwargs"])
    earlier = context.attempt - 1
    attempts = _attempts_of(backend, context.id) if backend and earlier else ()
    now = _now()
    change(
        result,
        status=TaskResultStatus.RUNNING,
        started_at=_for_people(attempts[0].started_at) if attempts else now,
        last_attempted_at=now,
        errors=[task_error(attempt.error_type, attempt.traceback) for attempt in attempts],
        worker_ids=[*_workers(attempts, earlier), process_name()],
    )
    return Running(result, sender)


def _sealed(terms: Terms | None) -> dict[str, Any]:
    """The signed options of a job, as options of a task."""
    if terms is None:
        return {}
    return {"priority": terms.priority, "run_after": _run_after(terms.schedule, terms.delay)}


def _attempts_of(backend: JobsBackend, job_id: str) -> tuple[AttemptRecord, ...]:
    try:
        return backend.attempts_of(job_id)
    except Exception as error:  # noqa: BLE001 - logged; the task runs all the same
        emit(AttemptsUnreadable(task_id=job_id, error=error))
        return ()


def _backend_of(alias: str) -> tuple[JobsBackend | None, type]:
    """The backend of an alias and its class, if TASKS still has the alias."""
    from django_jobs.tasks.backend import JobsBackend  # noqa: PLC0415 - that module imports this one

    try:
        configured = task_backends[alias]
    except Exception:  # noqa: BLE001 - the task runs all the same; the system checks report it
        configured = None
    if isinstance(configured, JobsBackend):
        return configured, type(configured)
    return None, JobsBackend


# Results rebuilt from a store.


def rebuilt(account: Account, alias: str, declared: Any) -> Any | None:
    """The result of a job, or None if the job is not a function call."""
    body = _legible(account.body)
    payload = body.get("payload", {"args": [], "kwargs": {}})
    if not isinstance(payload, dict) or payload.keys() != {"args", "kwargs"}:
        return None
    alias = body.get("meta", {}).get(ALIAS_IN_META, alias)
    task = rebuilt_task(
        declared or _lost_task(account.handler),
        backend=alias,
        queue_name=name_among_tasks(account.queue),
        priority=body.get("priority", 0),
        run_after=_run_after(body.get("schedule"), body.get("delay")),
    )
    result = blank(task, account.id, alias, payload["args"], payload["kwargs"])
    runs = account.attempts
    begun = [attempt.started_at for attempt in runs]
    begun += [] if account.started_at is None else [account.started_at]
    status = _STATUS.get(account.status, TaskResultStatus.FAILED)
    change(
        result,
        status=status,
        enqueued_at=result.enqueued_at or _for_people(body.get("enqueuedAt")),
        started_at=_for_people(begun[0] if begun else None),
        last_attempted_at=_for_people(begun[-1] if begun else None),
        finished_at=_for_people(account.finished_at),
        errors=_errors(account),
        worker_ids=_workers(runs, account.failed_attempts) + _last_worker(account),
    )
    if status is TaskResultStatus.SUCCESSFUL:
        why = why_not_kept(account.value_json)
        change(result, _return_value=NotKept(why) if why else json.loads(account.value_json))
    return result


def _legible(text: str | None) -> dict[str, Any]:
    """The fields of a body; empty if it was tampered with."""
    try:
        body = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(body, dict):
        return {}
    wrong = (name for name, kind in _KINDS.items() if not isinstance(body.get(name), kind))
    return {} if any(name in body for name in wrong) else body


def _errors(account: Account) -> list[JobsTaskError]:
    errors = [task_error(attempt.error_type, attempt.traceback) for attempt in account.attempts]
    if account.status == "cancelled":
        errors.append(task_error("django_jobs.handlers.base.Cancel", account.reason))
    elif account.status == "dead" and not (account.error_type and errors):
        text = ": ".join(part for part in (account.reason, account.error_message) if part)
        path = account.error_type or "django_jobs.exceptions.JobFailed"
        errors.append(task_error(path, account.traceback or text))
    return errors


def _workers(attempts: tuple[AttemptRecord, ...], made: int) -> list[str]:
    """One worker for each failed attempt, also for those without a record."""
    workers = [attempt.worker or UNKNOWN_WORKER for attempt in attempts]
    return [UNKNOWN_WORKER] * (made - len(workers)) + workers


def _last_worker(account: Account) -> list[str]:
    """The worker of a run that still goes on, or that ended the job without failing."""
    if account.started_at is None:
        return []
    return [account.worker or UNKNOWN_WORKER]


def rebuilt_task(declared: Any, **changes: Any) -> Any:
    """A copy of a task with other values, of the same class and without validation."""
    kind: Any = type(declared)
    task = object.__new__(kind)
    for name in _names(kind):
        value = changes[name] if name in changes else getattr(declared, name)
        object.__setattr__(task, name, value)
    return task


@lru_cache(maxsize=8)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _lost_task(path: str) -> Any:
    """A stand-in for a task whose function this process does not have."""

    def lost(*_args: Any, **_kwargs: Any) -> Any:
        raise LookupError(f"there is no task {path} in this process")

    module, _, name = path.rpartition(".")
    lost.__module__, lost.__qualname__, lost.__name__ = module, name, name
    task = object.__new__(Task)
    change(
        task,
        func=lost,
        priority=0,
        backend=DEFAULT_TASK_BACKEND_ALIAS,
        queue_name="",
        run_after=None,
        takes_context=False,
    )
    return task


def _run_after(schedule: int | None, delay: float | None) -> datetime | timedelta | None:
    """``schedule``: microseconds, ``delay``: seconds; a body has one of them, or neither."""
    if schedule is not None:
        return _for_people(schedule)
    return None if delay is None else timedelta(seconds=delay)


def enqueued_at(job_id: str) -> datetime | None:
    """When a job was enqueued, to the millisecond: an id of ours begins with it."""
    if job_id[_VERSION_AT] != "7":
        return None
    return _for_people(int(job_id[:8] + job_id[9:13], 16) * 1000)


def _now() -> datetime:
    return timezone.now()


def _for_people(microseconds: int | None) -> datetime | None:
    """A datetime as the site expects it: naive if USE_TZ is off."""
    if microseconds is None:
        return None
    moment = to_datetime(microseconds)
    return moment if settings.USE_TZ else timezone.make_naive(moment)
