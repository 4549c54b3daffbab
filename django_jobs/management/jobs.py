"""Jobs of every table and broker in one form, for ``jobs_list``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Inspects
from django_jobs.backends.database.wait import all_queues
from django_jobs.backends.home import store_now
from django_jobs.backends.registry import backends
from django_jobs.backends.values import reason_of
from django_jobs.clock import SECOND, SystemClock, from_datetime
from django_jobs.conf import get_settings
from django_jobs.management.output import aware, error_in_short, from_now, iso
from django_jobs.models import JobAttempt, JobResult, JobState, OutboxJob
from django_jobs.operations.dead_letters import select
from django_jobs.operations.overview import live
from django_jobs.outbox.lookup import state_of
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from django.db.models import QuerySet

    from django_jobs.models import Job

LIVE = ("scheduled", "ready", "running", "blocked")
ENDED = ("succeeded", "cancelled", "skipped")
STATES = (*LIVE, "dead", *ENDED)
PAGE = 100
LOOKS_AT_MOST = 100_000
HEADERS = ("id", "state", "handler", "queue", "attempts", "due", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One job. ``due`` is when it may run; a job that ended has ``ended`` instead.

    ``in_outbox``: it has not been pushed to its backend yet. ``reason``: why it was cancelled or
    skipped.
    """

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
    in_outbox: bool = False
    reason: str = ""

    def row(self) -> tuple[object, ...]:
        """The cells under HEADERS."""
        moment = self.due if self.ended is None else self.ended
        when = "" if moment is None else from_now((moment - self.now) / SECOND)
        if self.ended is not None and when:
            when = f"ended {when}"
        also = "suspect" if self.suspect else "outbox" if self.in_outbox else ""
        state = f"{self.state} ({also})" if also else self.state
        error = error_in_short(self.error_type, self.error_message or self.reason)
        return (self.id, state, self.handler, self.queue, self.attempts, when, error)

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        names = ("id", "state", "handler", "queue", "backend", "name", "priority", "attempts")
        error = {"type": self.error_type, "message": self.error_message}
        return {
            **{name: getattr(self, name) for name in names},
            "suspect": self.suspect,
            "due": iso(self.due),
            "ended": iso(self.ended),
            "error": error if any(error.values()) else None,
            "outbox": self.in_outbox,
            "reason": self.reason,
        }


@dataclass(slots=True)
class Wanted:
    """A filter and a limit. ``looks``: how many more rows may be scanned.

    Finding a rare handler among millions of jobs could take minutes.
    """

    state: str | None
    queue: str | None
    handler: str | None
    count: int
    looks: int = field(default_factory=lambda: LOOKS_AT_MOST)

    @property
    def may_miss_some(self) -> bool:
        """Whether the scan reached its limit."""
        return self.looks <= 0


def listed(wanted: Wanted) -> Iterator[Listed]:
    """Jobs in one state, or all live ones."""
    state = wanted.state
    for alias in job_databases(get_settings()):
        if state == "dead":
            yield from _dead(alias, wanted)
        elif state in ENDED:
            yield from _ended(alias, wanted)
        else:
            yield from _live(alias, wanted)
            yield from _in_outbox(alias, wanted)
    for config in get_settings().backends.values():
        backend = backends[config.alias]
        if database_of(config) is None and isinstance(backend, Inspects):
            yield from _at_broker(backend, wanted)


def _at_broker(backend: Inspects, wanted: Wanted) -> Iterator[Listed]:
    state, queue, handler = wanted.state, wanted.queue, wanted.handler
    if not backend.capabilities.peek:
        return
    if state is None or state in LIVE:
        yield from _peeked(backend, state, queue, handler)
    elif state in ENDED:
        yield from _kept(backend, state, queue, handler)


def _live(alias: str, wanted: Wanted) -> Iterator[Listed]:
    now = store_now(alias)
    for name in [wanted.queue] if wanted.queue else all_queues(alias):
        # State by state: each is a range of an index; together the rows would have to be sorted.
        for state in JobState if wanted.state is None else [JobState[wanted.state.upper()]]:
            jobs = live(name, using=alias).filter(state=state)
            if wanted.handler is not None:
                jobs = live(using=alias).filter(pk__in=_of_handler(jobs, wanted))
            rows = list(jobs.defer("body", "meta", "created_at")[: wanted.count])
            for start in range(0, len(rows), PAGE):
                yield from _with_errors(alias, rows[start : start + PAGE], now)


def _of_handler(jobs: QuerySet[Job], wanted: Wanted) -> list[Any]:
    looked_at = list(jobs.values_list("pk", "handler")[: max(wanted.looks, 0)])
    wanted.looks -= len(looked_at)
    return [pk for pk, handler in looked_at if handler == wanted.handler][: wanted.count]


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


def _in_outbox(alias: str, wanted: Wanted) -> Iterator[Listed]:
    """Jobs that have not been pushed to their backend yet, the oldest first."""
    now = store_now(alias)
    for row in _rows_of_outbox(alias, wanted):
        state = state_of(row)
        if wanted.state not in {None, state} or wanted.handler not in {None, row.handler}:
            continue
        yield Listed(
            id=str(row.job_id),
            state=state,
            handler=row.handler,
            queue=row.queue,
            backend=row.backend,
            name="",
            priority=None,
            attempts=0,
            suspect=False,
            due=None,
            ended=None,
            error_type="",
            error_message=row.problem,
            now=now,
            in_outbox=True,
        )


def _rows_of_outbox(alias: str, wanted: Wanted) -> Iterator[OutboxJob]:
    """Read page by page: a driver may load all rows of a query at once, with their bodies."""
    rows = OutboxJob.objects.using(alias).order_by("pk")
    if wanted.queue is not None:
        rows = rows.filter(queue=wanted.queue)
    last = 0
    while wanted.looks > 0 and (page := list(rows.filter(pk__gt=last)[:PAGE])):
        wanted.looks -= len(page)
        last = page[-1].pk
        yield from page


def _dead(alias: str, wanted: Wanted) -> Iterator[Listed]:
    now = store_now(alias)
    letters = select(queue=wanted.queue, handler=wanted.handler, using=alias)
    for dead in letters[: wanted.count]:
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


def _ended(alias: str, wanted: Wanted) -> Iterator[Listed]:
    """The latest first, by primary key: ids increase with time."""
    now = store_now(alias)
    latest = JobResult.objects.using(alias).order_by("-job_id")
    named = {"status": wanted.state, "queue": wanted.queue, "handler": wanted.handler}
    ended = latest.filter(**{name: value for name, value in named.items() if value is not None})
    for last in latest.values_list("job_id", flat=True)[LOOKS_AT_MOST : LOOKS_AT_MOST + 1]:
        ended, wanted.looks = ended.filter(job_id__gt=last), 0
    for result in ended.defer("body", "value")[: wanted.count]:
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
            reason=reason_of(result.status, result.output),
        )


def _peeked(
    backend: Inspects, state: str | None, queue: str | None, handler: str | None
) -> Iterator[Listed]:
    """The first jobs of each queue of a broker."""
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


def _kept(
    backend: Inspects, state: str, queue: str | None, handler: str | None
) -> Iterator[Listed]:
    """The latest jobs that ended, as far as a broker keeps them."""
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
            reason=account.reason,
        )


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else from_datetime(aware(moment))
