"""What can be in the way of a live job. Each function tells of one thing, or of nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Q

from django_jobs.backends.database.limits import UNLIMITED, is_rate
from django_jobs.backends.rates import Rate, Usage
from django_jobs.clock import to_datetime
from django_jobs.conf import get_settings
from django_jobs.exceptions import HandlerRefused
from django_jobs.handlers.registry import check_allowed, registry
from django_jobs.models import Job, JobState, OperatorEvent, QueueControl, QueueMeter
from django_jobs.operations.breakers import open_breakers, until
from django_jobs.operations.causes import Cause, span
from django_jobs.operations.workers import serves, workers

if TYPE_CHECKING:
    from collections.abc import Iterator

_FAILURES = {"queue": "rejected jobs", "handler": "failures"}
COUNTED_AT_MOST = 1000
HOLDERS_SHOWN = 3


def of_running(job: Job, alias: str, now: int) -> Iterator[Cause]:
    """A job that is leased: by whom, until when, and whether anybody still cares."""
    ends = job.lease_expires or 0
    if ends > now:
        yield Cause(
            "leased",
            f"{job.worker or 'A worker'} has held it for {span(now - (job.leased_at or now))}; "
            f"its lease ends in {span(ends - now)}, and is renewed as long as that worker lives.",
            "Wait for its end, or ask it to stop: jobs_cancel.",
        )
    else:
        yield Cause(
            "lease-ended",
            f"The lease of {job.worker or 'its worker'} ended {span(now - ends)} ago without a "
            "verdict: that worker is lost, or cannot reach the database.",
            "Workers return it by themselves. Is one there? Without one: jobs_reap.",
        )
        yield from of_workers(job, alias)
    if job.cancel_requested:
        yield Cause(
            "stop-asked",
            "Somebody asked it to stop; its handler is told, and stopped if it does not listen.",
            "Wait a few seconds.",
        )
    yield from _suspect(job)


def of_waiting(job: Job, alias: str, now: int) -> Iterator[Cause]:
    """A job that nobody holds: everything that keeps it from being claimed and run."""
    if job.state not in JobState:
        told = f"Its state is {job.state}, which is none: no worker sees the job."
        yield Cause(
            "no-state", told, f"Somebody wrote it past us. End it with jobs_cancel {job.pk}."
        )
        return
    before = list(_in_the_way(job, alias, now))
    yield from before
    if not before:
        yield from _its_turn(job, alias)


def _in_the_way(job: Job, alias: str, now: int) -> Iterator[Cause]:
    yield from _not_due(job, now)
    control = QueueControl.objects.using(alias).filter(backend=job.backend, queue=job.queue).first()
    if control is not None and control.paused:
        yield of_pause(job, control, alias)
    yield from of_workers(job, alias)
    yield from _limited(job, control, alias, now)
    yield from of_breakers(job, now)
    yield from _key_held(job, alias)
    yield from of_handler(job.handler, job.queue)
    if job.cancel_requested:
        yield Cause(
            "stop-asked",
            "Somebody asked it to stop while it ran; it will be cancelled when its turn comes.",
            f"To end it now: jobs_cancel {job.pk}.",
        )
    if job.expires is not None and job.expires <= now:
        yield Cause(
            "expired",
            f"The time it was given ended {span(now - job.expires)} ago: it will not be run, "
            "but become a dead letter when its turn comes.",
            "Replay it from the dead letters: that gives it new time.",
        )
    yield from _suspect(job)


def _not_due(job: Job, now: int) -> Iterator[Cause]:
    if job.due <= now:
        return
    moment = f"{to_datetime(job.due):%Y-%m-%d %H:%M:%S} UTC"
    why = f" It waits after {job.attempts} failed attempts." if job.attempts else ""
    yield Cause(
        "not-due", f"It is not due until {moment}, in {span(job.due - now)}.{why}", "Wait for it."
    )


def of_pause(job: Job, control: QueueControl, alias: str) -> Cause:
    events = OperatorEvent.objects.using(alias).filter(
        action="pause", backend=job.backend, queue=job.queue
    )
    event = events.order_by("-at", "-pk").first()
    who = (event.actor if event else control.changed_by) or "somebody"
    since = event.at if event else control.changed_at
    when = "" if since is None else f" at {since:%Y-%m-%d %H:%M:%S %Z}".rstrip()
    why = f" ({control.reason})" if control.reason else ""
    told = f"The queue {job.queue} was paused by {who}{when}{why}."
    return Cause("paused", told, f"When that is over: jobs_queue resume {job.queue}.")


def of_workers(job: Job, alias: str) -> Iterator[Cause]:
    here = [seen.worker for seen in workers(alias) if seen.is_present]
    mine = [worker for worker in here if worker.backend == job.backend]
    listening = [worker for worker in mine if serves(worker, job.queue)]
    start = f"Start one: manage.py jobs_work --queue {job.queue}"
    if job.backend != get_settings().default_backend:
        start += f" --backend {job.backend}"
    if not listening:
        told = f"No worker listens on the queue {job.queue}"
        others = ", ".join(sorted({worker.queues for worker in mine}))
        told += f": those there are serve {others}." if mine else ": no worker is running at all."
        yield Cause("no-worker", told, f"{start}.")
    elif all(worker.draining for worker in listening):
        told = f"Every worker that listens on the queue {job.queue} was asked to drain."
        yield Cause("no-worker", told, f"{start}.")


def _limited(job: Job, control: QueueControl | None, alias: str, now: int) -> Iterator[Cause]:
    configured = get_settings().queues.get(job.queue)
    text = (configured and configured.rate_limit) or ""
    if control is not None and is_rate(control.rate_limit):
        text = control.rate_limit
    yield from _rate_limited(job, text, alias, now)
    places = control.concurrency if control is not None else None
    if places is not None:
        running = Job.objects.using(alias).filter(
            queue=job.queue, state=JobState.RUNNING, backend=job.backend, lease_expires__gt=now
        )
        if running.count() >= places:
            told = f"The queue {job.queue} runs {places} at a time, and all places are taken."
            way_out = f"Wait, or jobs_queue set {job.queue} concurrency=…"
            yield Cause("concurrency", told, way_out)


def _rate_limited(job: Job, text: str, alias: str, now: int) -> Iterator[Cause]:
    if not text or text == UNLIMITED:
        return
    meter = QueueMeter.objects.using(alias).filter(backend=job.backend, queue=job.queue).first()
    usage = Usage.read(Rate.parse(text), meter.told if meter else None, now)
    if not usage.free():
        yield Cause(
            "rate-limited",
            f"The rate limit of the queue {job.queue}, {text}, is used up for the next "
            f"{span(usage.free_in(now))}.",
            f"Wait, or jobs_queue set {job.queue} rate_limit=…",
        )


def of_breakers(job: Job, now: int) -> Iterator[Cause]:
    """Circuit breakers that are open for a job: of its queue, and of its handler."""
    concerned = {("queue", job.queue), ("handler", job.handler)}
    for breaker in open_breakers():
        if breaker.backend != job.backend or (breaker.kind, breaker.name) not in concerned:
            continue
        how_to = f"jobs_queue reset-breaker {job.queue}"
        if breaker.kind == "handler":
            how_to += f" --handler {job.handler}"
        yield Cause(
            "breaker-open",
            f"The circuit breaker of the {breaker.kind} {breaker.name} is {until(breaker, now)}, "
            f"after {breaker.failures} {_FAILURES[breaker.kind]} in a row.",
            f"Repair what fails; it closes when a job that it lets try goes well, or by {how_to}.",
        )


def _key_held(job: Job, alias: str) -> Iterator[Cause]:
    running = Job.objects.using(alias).filter(state=JobState.RUNNING)
    named = {"concurrency_key": max(job.concurrency or 1, 1), "idempotency_key": 1}
    for column, limit in named.items():
        if (key := getattr(job, column)) is None:
            continue
        same = running.filter(Q(concurrency_key=key) | Q(idempotency_key=key)).exclude(pk=job.pk)
        holders = list(same.order_by("leased_at").values_list("pk", "worker")[: limit + 1])
        if len(holders) < limit:
            continue
        shown = ", ".join(f"job {pk} on {worker}" for pk, worker in holders[:HOLDERS_SHOWN])
        more = len(holders) - HOLDERS_SHOWN
        shown += f" and {more} more" if more > 0 else ""
        yield Cause(
            "key-held",
            f"Its {column} lets {limit} run at a time, and is held by {shown}.",
            "It is released when that job ends; jobs_cancel asks that one to stop.",
        )


def of_handler(key: str, queue: str) -> Iterator[Cause]:
    """A handler that this process does not know, or its queue does not allow."""
    if registry.get(key) is None:
        yield Cause(
            "unknown-handler",
            f"No handler is registered as {key!r} in this process. Where a worker does not know "
            "it either, the job is put off again and again (UNKNOWN_HANDLER).",
            "Was it renamed, or is its app not installed? Start workers with the code that has it.",
        )
        return
    try:
        check_allowed(key, queue, get_settings().queue(queue).handlers)
    except HandlerRefused as refusal:
        told = f"It will be rejected when its turn comes: {refusal}"
        yield Cause("not-allowed", told, "Allow the handler, or cancel the job.")


def _suspect(job: Job) -> Iterator[Cause]:
    if job.suspect:
        yield Cause(
            "suspect",
            "It is a suspect: an earlier lease of it ended without a verdict, so it is run alone, "
            f"in a process of its own. It was charged {job.crashes} crashes so far.",
            "Nothing to do. A worker that has no process free for it puts it off, for a minute "
            "at most.",
        )


def _its_turn(job: Job, alias: str) -> Iterator[Cause]:
    """Nothing is in its way but others that come first."""
    if job.state == JobState.BLOCKED:
        told = "It waits for a key that has a place, and others of its queue go on before it."
        yield Cause("its-turn", told, "It is made ready when they have had their turn.")
        return
    ready = Job.objects.using(alias).filter(queue=job.queue, state=JobState.READY)
    earlier = Q(rank__lt=job.rank) | Q(rank=job.rank, due__lt=job.due)
    before = ready.filter(earlier).order_by("rank", "due")[: COUNTED_AT_MOST + 1].count()
    count = f"more than {COUNTED_AT_MOST}" if before > COUNTED_AT_MOST else str(before)
    told = "Nothing is in its way"
    if before:
        told += f" but {count} jobs of its queue that come before it"
    yield Cause("its-turn", f"{told}.", "It runs when a worker is free; more workers help.")
