"""Jobs in one shape, whichever table or broker they are found in, for a list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_jobs.backends.registry import backends
from django_jobs.clock import SECOND, SystemClock, from_datetime
from django_jobs.conf import get_settings
from django_jobs.management.output import aware, error_in_short, from_now, iso
from django_jobs.models import JobAttempt, JobResult, JobState
from django_jobs.operations import live, select
from django_jobs.operations.database import store_now
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from django_jobs.backends.base import Backend
    from django_jobs.models import Job

LIVE = ("scheduled", "ready", "running", "blocked")
ENDED = ("succeeded", "cancelled", "skipped")
STATES = (*LIVE, "dead", *ENDED)
HEADERS = ("id", "state", "handler", "queue", "attempts", "due", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One job. ``due`` is when it may run; a job that ended has ``ended`` instead."""

    id: str
    state: str
    handler: str
    queue: str
    backend: str
    name: str
    priority: int | None
    attempts: int
    suspect: bool
    due: int | None
    ended: int | None
    error_type: str
    error_message: str
    now: int

    def row(self) -> tuple[object, ...]:
        """The cells under HEADERS."""
        moment = self.due if self.ended is None else self.ended
        when = "" if moment is None else from_now((moment - self.now) / SECOND)
        if self.ended is not None and when:
            when = f"ended {when}"
        state = f"{self.state} (suspect)" if self.suspect else self.state
        error = error_in_short(self.error_type, self.error_message)
        return (self.id, state, self.handler, self.queue, self.attempts, when, error)

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        known = ("id", "state", "handler", "queue", "backend", "name", "priority", "attempts")
        error = {"type": self.error_type, "message": self.error_message}
        return {
            **{name: getattr(self, name) for name in known},
            "suspect": self.suspect,
            "due": iso(self.due),
            "ended": iso(self.ended),
            "error": error if any(error.values()) else None,
        }


def listed(state: str | None, queue: str | None, handler: str | None) -> Iterator[Listed]:
    """Jobs in one state, or all live ones; read as far as they are asked for."""
    for alias in job_databases(get_settings()):
        if state == "dead":
            yield from _dead(alias, queue, handler)
        elif state in ENDED:
            yield from _ended(alias, state, queue, handler)
        else:
            yield from _live(alias, state, queue, handler)
    for config in get_settings().backends.values():
        backend = backends[config.alias]
        if database_of(config) is not None or not backend.capabilities.peek:
            continue
        if state is None or state in LIVE:
            yield from _peeked(backend, state, queue, handler)
        elif state in ENDED:
            yield from _kept(backend, state, queue, handler)


PAGE = 100


def _live(alias: str, state: Any, queue: str | None, handler: str | None) -> Iterator[Listed]:
    now = store_now(alias)
    jobs = live(queue, handler, state, using=alias)
    page: list[Job] = []
    for job in jobs.defer("body", "meta", "created_at").iterator(PAGE):
        page.append(job)
        if len(page) == PAGE:
            yield from _with_errors(alias, page, now)
            page = []
    yield from _with_errors(alias, page, now)


def _with_errors(alias: str, page: list[Job], now: int) -> Iterator[Listed]:
    attempts = JobAttempt.objects.using(alias).filter(job_id__in=[job.pk for job in page])
    of_jobs = attempts.order_by("number").values_list("job_id", "error_type", "error_message")
    errors = {job_id: (kind, message) for job_id, kind, message in of_jobs}
    for job in page:
        kind, message = errors.get(job.pk, ("", ""))
        yield Listed(
            id=str(job.pk),
            state=JobState.label_of(job.state),
            handler=job.handler,
            queue=job.queue,
            backend=job.backend,
            name=job.name,
            priority=job.priority,
            attempts=job.attempts,
            suspect=job.suspect,
            due=job.due,
            ended=None,
            error_type=kind,
            error_message=message,
            now=now,
        )


def _dead(alias: str, queue: str | None, handler: str | None) -> Iterator[Listed]:
    now = store_now(alias)
    for dead in select(queue=queue, handler=handler, using=alias).iterator(PAGE):
        yield Listed(
            id=str(dead.job_id),
            state="dead",
            handler=dead.handler,
            queue=dead.queue,
            backend=dead.backend,
            name=dead.name,
            priority=dead.priority,
            attempts=dead.attempts,
            suspect=False,
            due=None,
            ended=_microseconds(dead.failed_at),
            error_type=dead.error_type or dead.reason,
            error_message=dead.error_message,
            now=now,
        )


def _ended(alias: str, state: str, queue: str | None, handler: str | None) -> Iterator[Listed]:
    """The latest first, by their ids: these rise with time, and are the key of the table."""
    now = store_now(alias)
    wanted = {"status": state, "queue": queue, "handler": handler}
    ended = JobResult.objects.using(alias).order_by("-job_id")
    ended = ended.filter(**{name: value for name, value in wanted.items() if value is not None})
    for result in ended.defer("body", "value").iterator(PAGE):
        yield Listed(
            id=str(result.job_id),
            state=result.status,
            handler=result.handler,
            queue=result.queue,
            backend=result.backend,
            name=result.name,
            priority=None,
            attempts=result.attempts,
            suspect=False,
            due=None,
            ended=_microseconds(result.finished_at),
            error_type="",
            error_message="",
            now=now,
        )


def _peeked(
    backend: Backend, state: str | None, queue: str | None, handler: str | None
) -> Iterator[Listed]:
    """What a broker shows of its jobs."""
    for name in [queue] if queue else backend.queues():
        for glimpse in (*backend.peek(name, PAGE), *backend.held(name, PAGE)):
            index, header = glimpse.message.index, glimpse.message.header
            if state not in {None, glimpse.state} or handler not in {None, index.get("handler")}:
                continue
            yield Listed(
                id=glimpse.id,
                state=glimpse.state,
                handler=index.get("handler") or "",
                queue=glimpse.queue,
                backend=backend.alias,
                name=index.get("name") or "",
                priority=-(index.get("rank") or 0),
                attempts=header.attempts,
                suspect=bool(glimpse.extra.get("suspect")),
                due=glimpse.due,
                ended=None,
                error_type="",
                error_message="",
                now=SystemClock().now(),
            )


def _kept(backend: Backend, state: str, queue: str | None, handler: str | None) -> Iterator[Listed]:
    """What a broker keeps of jobs that ended."""
    for account in backend.latest(queue, PAGE):
        if account.status != state or handler not in {None, account.handler}:
            continue
        yield Listed(
            id=account.id,
            state=account.status,
            handler=account.handler,
            queue=account.queue,
            backend=backend.alias,
            name="",
            priority=None,
            attempts=account.failed_attempts,
            suspect=False,
            due=None,
            ended=account.finished_at,
            error_type="",
            error_message="",
            now=SystemClock().now(),
        )


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else from_datetime(aware(moment))
