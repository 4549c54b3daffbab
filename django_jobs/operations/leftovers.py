"""Which jobs are left in a backend when nothing is due for a worker, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.backends.base import can_peek
from django_jobs.backends.home import jobs_database, moments
from django_jobs.clock import to_datetime
from django_jobs.operations.brokers import open_breakers
from django_jobs.operations.causes import span
from django_jobs.operations.overview import COUNTED_AT_MOST, overview_of_some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from django_jobs.backends.base import Backend
    from django_jobs.operations.overview import QueueOverview

PEEKED_AT_MOST = 100
NAMED_AT_MOST = 20


def leftovers(backend: Backend, served: Collection[str] | None) -> Iterator[str]:
    """A line for each reason why jobs are left. ``served``: the worker's queues, None for all.

    Only some queues are named, the served ones first: there may be thousands.
    """
    at = moments()
    now = at.get(backend.home or "", at[jobs_database()])
    queues = overview_of_some(COUNTED_AT_MOST, at=at, breakers=open_breakers()).queues
    queues = [queue for queue in queues if queue.backend == backend.alias and _holds_any(queue)]
    queues.sort(key=lambda queue: served is not None and queue.queue not in served)
    for queue in queues[:NAMED_AT_MOST]:
        for reason in _reasons(
            queue, backend, now, is_served=served is None or queue.queue in served
        ):
            yield f"left in the queue {queue.queue}: {reason}"
    if more := len(queues[NAMED_AT_MOST:]):
        yield f"left in {more:,} more queue{'s' if more > 1 else ''}: jobs_status shows them all"


def _holds_any(queue: QueueOverview) -> bool:
    return bool(queue.problem or queue.running or queue.ready or queue.scheduled or queue.blocked)


def _reasons(queue: QueueOverview, backend: Backend, now: int, *, is_served: bool) -> Iterator[str]:
    if queue.problem:
        yield f"unknown, because it could not be asked: {queue.problem}"
        return
    if not is_served:
        waiting = queue.ready + queue.scheduled + queue.blocked
        if waiting:
            yield f"{_jobs(queue, waiting)} that this worker does not serve: --queue leaves it out"
        return
    if queue.running:
        yield f"{_jobs(queue, queue.running, 'running')} that another worker runs"
    due = _next_due(queue, backend) if queue.scheduled else None
    is_late = due is not None and due <= now
    if queue.scheduled and not is_late:
        text = f"{_jobs(queue, queue.scheduled, 'scheduled')} not due yet"
        moment = f"; the next one is due at {to_datetime(due):%Y-%m-%d %H:%M:%S} UTC" if due else ""
        yield text + (f"{moment}, in {span(due - now)}" if due else "")
    if queue.ready or is_late:
        count = queue.ready + (queue.scheduled if is_late else 0)
        yield f"{_jobs(queue, count)} {_why_not_started(queue)}"
    if queue.blocked:
        blocked = _jobs(queue, queue.blocked, "blocked")
        yield f"{blocked} waiting for a key that jobs of another worker hold"


def _why_not_started(queue: QueueOverview) -> str:
    """Why a worker that serves the queue did not start its due jobs."""
    if queue.paused:
        why = f" ({queue.paused_reason})" if queue.paused_reason else ""
        return f"held up, for the queue is paused{why}; jobs_queue resume {queue.queue} lets it go"
    if queue.breaker:
        return (
            f"held up, for its circuit breaker is {queue.breaker}; it closes when a job goes well, "
            f"or by jobs_queue reset-breaker {queue.queue}"
        )
    if queue.concurrency is not None and queue.running >= queue.concurrency:
        return f"held up, for the queue lets {queue.concurrency} run at a time"
    return "due since just now, or locked; start a worker again, or ask jobs_explain"


def _next_due(queue: QueueOverview, backend: Backend) -> int | None:
    """When the first scheduled job is due, if the backend shows its jobs."""
    if not can_peek(backend):
        return None
    jobs = backend.peek(queue.queue, min(queue.ready, PEEKED_AT_MOST) + 1)
    return next((job.due for job in jobs if job.state == "scheduled"), None)


def _jobs(queue: QueueOverview, count: int, *names: str) -> str:
    more = "+" if set(names or ("ready", "scheduled", "blocked")) & set(queue.at_least) else ""
    return f"{count:,}{more} job{'' if count == 1 and not more else 's'}"
