"""The state of queues and workers, and whether to alert an operator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings

from django_jobs.backends.home import store_now
from django_jobs.clock import SECOND, from_datetime
from django_jobs.conf import get_settings
from django_jobs.conf.keys import ENVIRONMENT_KEY
from django_jobs.definition import UNSET
from django_jobs.management.output import aware, escaped, from_now, iso, shortened, span
from django_jobs.models import Worker
from django_jobs.operations.overview import overview
from django_jobs.redaction import HIDDEN, is_sensitive, redacted
from django_jobs.routers import job_databases

if TYPE_CHECKING:
    from django_jobs.operations.brokers import OpenBreaker
    from django_jobs.operations.health import HealthProblem
    from django_jobs.operations.overview import QueueOverview
    from django_jobs.outbox.lookup import Backlog

QUEUE_HEADERS = (
    "queue",
    "backend",
    "ready",
    "scheduled",
    "running",
    "blocked",
    "suspect",
    "dead",
    "oldest ready",
    "paused",
    "breaker",
)
BREAKER_HEADERS = ("breaker of", "name", "backend", "state", "failures", "next try")
WORKER_HEADERS = ("worker", "backend", "queues", "processes", "running", "started", "seen")


def queues(only: str | None) -> list[QueueOverview]:
    """Every queue, or the queue named ``only`` on each backend."""
    return [queue for queue in overview() if only in {None, queue.queue}]


def queue_row(queue: QueueOverview) -> tuple[object, ...]:
    """The cells under QUEUE_HEADERS."""
    paused = f"yes: {shortened(queue.paused_reason)}" if queue.paused_reason else "yes"
    cells: tuple[object, ...] = (
        *(queue.shown(name) for name in QUEUE_HEADERS[2:8]),
        span(queue.oldest_ready_seconds) if queue.ready else "",
    )
    if queue.problem:
        cells = ("?", "?", "?", "?", "?", queue.shown("dead"), shortened(queue.problem))
    held = (paused if queue.paused else "", queue.breaker)
    return (queue.queue, queue.backend, *cells, *held)


def breaker_row(breaker: OpenBreaker) -> tuple[object, ...]:
    """The cells under BREAKER_HEADERS."""
    left = breaker.seconds_left
    return (
        breaker.kind,
        breaker.name,
        breaker.backend,
        breaker.state,
        breaker.failures,
        from_now(left) if left else "now",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A worker, and the current time of the database that has its row."""

    worker: Worker
    now: int

    def row(self) -> tuple[object, ...]:
        """The cells under WORKER_HEADERS."""
        worker = self.worker
        started = (from_datetime(aware(worker.started_at)) - self.now) / SECOND
        running = f"{worker.running} (draining)" if worker.draining else worker.running
        return (
            f"{worker.host}:{worker.pid}",
            worker.backend,
            worker.queues or "every",
            worker.processes,
            running,
            from_now(started),
            from_now((worker.seen - self.now) / SECOND),
        )

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        worker = self.worker
        names = ("host", "pid", "backend", "queues", "processes", "concurrency", "running")
        return {
            "id": str(worker.pk),
            **{name: getattr(worker, name) for name in names},
            "draining": worker.draining,
            "started_at": iso(worker.started_at),
            "seen_at": iso(worker.seen),
            "seen_seconds_ago": max(self.now - worker.seen, 0) / SECOND,
        }


def workers() -> list[Seen]:
    """Workers with a heartbeat; in each database, the most recent first."""
    return [
        Seen(worker=worker, now=store_now(alias))
        for alias in job_databases(get_settings())
        for worker in Worker.objects.using(alias).order_by("-seen")
    ]


def describe_problem(problem: HealthProblem) -> str:
    """A problem as a sentence, for the output of a probe."""
    where = escaped(f"{problem.queue} ({problem.backend})" if problem.queue else problem.backend)
    since = span(problem.seconds)
    jobs = f"{problem.jobs}{'+' if problem.at_least else ''}"
    match problem.kind:
        case "overdue":
            return f"overdue: {where} has {jobs} waiting, one for {since}"
        case "lease-expired":
            return (
                f"lease expired: {where} has {problem.jobs} running for workers that are gone, one "
                f"for {since}; is a worker there to reap them?"
            )
        case "outbox":
            return (
                f"outbox: {where} has {problem.jobs} that no relay has moved on, one for {since}; "
                "does a worker of that backend run, and does its broker take jobs?"
            )
        case "no-worker":
            return f"no worker: {where}: {escaped(problem.detail)}"
        case _:
            return f"unreachable: {where}: {escaped(problem.detail)}"


# The backlog of the outbox.

BACKLOG_HEADERS = ("outbox of", "queue", "jobs", "refused", "oldest", "")


def backlog_row(backlog: Backlog) -> tuple[object, ...]:
    """The cells under BACKLOG_HEADERS."""
    note = "does it move? is a worker of this backend there?" if backlog.stalled else ""
    return (
        shortened(backlog.backend),
        shortened(backlog.queue),
        backlog.jobs,
        backlog.refused or "",
        span(backlog.oldest_seconds),
        note,
    )


# The settings in force and where each comes from, without secrets.

HEADERS = ("setting", "value", "origin")
_HARMLESS_OPTIONS = frozenset({"DATABASE", "NOTIFY"})
_WRITTEN = {"path": "BACKEND"}
_ALSO_THE_KEY = frozenset({"alias", "name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """One setting. ``origin``: setting, env or default."""

    name: str
    value: Any
    origin: str


def effective() -> list[Effective]:
    """Every setting, in the order of the documentation."""
    settings = get_settings()
    written = getattr(django_settings, "DJANGO_JOBS", {})
    rows = []
    for field in fields(settings):
        name = field.name.upper()
        origin = "setting" if name in written else "default"
        value = getattr(settings, field.name)
        if name == "SIGNING_KEYS":
            origin = _origin_of_keys(written)
            value = [f"{key.key_id}: {HIDDEN}" for key in value]
        if name == "ENVIRONMENT" and origin == "default" and value is not None:
            origin = "env"
        if name == "MONITOR_TOKEN" and value is not None:
            value = HIDDEN
        rows.append(Effective(name=name, value=_plain(name, value), origin=origin))
    return rows


def _origin_of_keys(written: Mapping[str, Any]) -> str:
    """Where the signing keys come from; by default they are derived from SECRET_KEY."""
    if written.get("SIGNING_KEYS") is not None:
        return "setting"
    return "env" if ENVIRONMENT_KEY in os.environ else "default"


def _plain(name: str, value: Any) -> Any:
    """A setting's value in a form that JSON can hold."""
    if name == "options":
        return {key: _option(key, option) for key, option in value.items()}
    if names := _names_of_fields(value):
        items = ((key, getattr(value, key)) for key in names)
        return {
            _WRITTEN.get(key, key.upper()): _plain(key, item)
            for key, item in items
            if item is not UNSET and key not in _ALSO_THE_KEY
        }
    if isinstance(value, Mapping):
        return redacted({str(key): _plain("", item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return [_plain("", item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def _names_of_fields(value: Any) -> Sequence[str]:
    """The field names of a dataclass or a named tuple; empty for other values."""
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return getattr(value, "_fields", ())


def _option(key: str, value: Any) -> Any:
    """Hide texts: options of a backend may hold passwords, in URLs too."""
    if value is None or isinstance(value, bool | int | float):
        return HIDDEN if is_sensitive(key) else value
    return value if key in _HARMLESS_OPTIONS else HIDDEN
