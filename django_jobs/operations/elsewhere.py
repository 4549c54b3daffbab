"""What can be told of jobs that are not in a database, but with a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.backends.registry import backends
from django_jobs.clock import to_datetime
from django_jobs.db.home import jobs_database
from django_jobs.models import Job, QueueControl
from django_jobs.operations import hindrances
from django_jobs.operations.breakers import open_breakers
from django_jobs.operations.causes import Cause, not_kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.backends.base import Account, Glimpse


def of_live(found: Glimpse, backend: str) -> Iterator[Cause]:
    """What is in the way of a job that a broker holds: less than a database knows."""
    handler = str(found.message.index.get("handler") or "")
    over = found.lease_expires is not None and found.lease_expires <= (
        found.extra.get("seen_at") or 0
    )
    if over:
        told = "Its lease ended without a verdict: its worker is lost, or cannot reach the broker."
        yield Cause("lease-ended", told, "Workers return it by themselves. Without one: jobs_reap.")
    elif found.state == "running":
        yield Cause("leased", "A worker has it just now.", "Wait for its end.")
    elif found.state == "scheduled":
        moment = f"{to_datetime(found.due):%Y-%m-%d %H:%M:%S} UTC"
        yield Cause("not-due", f"It is not due until {moment}.", "Wait.")
    elif found.state == "blocked":
        told = "Others hold the key that it shares with them."
        yield Cause("key-held", told, "It is released when one of those jobs ends.")
    yield from _of_itself(found)
    if found.state != "running" or over:
        yield from _of_queue(found.queue, backend, handler)
    yield from hindrances.of_handler(handler, found.queue)


def _of_itself(found: Glimpse) -> Iterator[Cause]:
    """What somebody has asked of a job, or an earlier lease has made of it."""
    if found.extra.get("asked_to_stop"):
        told = "Somebody asked it to stop while it ran."
        yield Cause("stop-asked", told, "Wait: it is stopped, or cancelled when its turn comes.")
    if found.extra.get("suspect"):
        yield Cause(
            "suspect",
            "It is a suspect: an earlier lease of it ended without a verdict, so it is run alone, "
            "in a process of its own. It was charged "
            f"{found.message.header.crashes} crashes so far.",
            "Nothing to do. A worker that has no process free for it puts it off, for a minute "
            "at most.",
        )


def _limited(queue: str, backend: str, control: QueueControl | None) -> Iterator[Cause]:
    """A limit that lets nothing of a queue start just now."""
    if backends[backend].held_back([queue]) != "rate-limited":
        return
    places = None if control is None else control.concurrency
    if places is not None and (running := backends[backend].stats(queue).running) >= places:
        told = f"{running} jobs of the queue {queue} run, and it lets {places} run at a time."
        yield Cause("concurrency", told, f"Wait, or jobs_queue set {queue} concurrency=…")
    else:
        told = f"The rate limit of the queue {queue} is used up for now."
        yield Cause("rate-limited", told, f"Wait, or jobs_queue set {queue} rate_limit=…")


def _of_queue(queue: str, backend: str, handler: str) -> Iterator[Cause]:
    alias, job = jobs_database(), Job(backend=backend, queue=queue, handler=handler)
    control = QueueControl.objects.using(alias).filter(backend=backend, queue=queue).first()
    if control is not None and control.paused:
        yield hindrances.of_pause(job, control, alias)
    if not backends[backend].ends_with_process:
        yield from hindrances.of_workers(job, alias)
    yield from _limited(queue, backend, control)
    for breaker in open_breakers():
        if breaker.backend == backend and (breaker.kind, breaker.name) in {
            ("queue", queue),
            ("handler", handler),
        }:
            told = f"The circuit breaker of the {breaker.kind} {breaker.name} is {breaker.state}."
            yield Cause("breaker-open", told, f"Wait, or jobs_queue reset-breaker {queue}.")


def of_ended(account: Account) -> Cause:
    """How a job ended whose result the broker keeps."""
    told = {"succeeded": "It succeeded", "cancelled": "It was cancelled"}
    way_out = "Nothing is left to run. Enqueue it again if the work is wanted once more."
    said = told.get(account.status, f"It ended: {account.status}")
    said += f": {account.reason}" if account.reason else "."
    said += not_kept(account.value_json)
    return Cause("cancelled" if account.status == "cancelled" else "ended", said, way_out)
