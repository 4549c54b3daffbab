"""Explain why a job is not running: every cause, in the order in which it takes effect.

All causes are listed, not only the first: an operator who resumes a queue also wants to know
that no worker listens on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db.models import Q
from django.db.models.functions import Left

from django_jobs import outbox
from django_jobs.backends.base import KeepsBreakers, can_account, can_peek
from django_jobs.backends.database.unreadable import of_known_kinds
from django_jobs.backends.home import jobs_database, store_now
from django_jobs.backends.limits import UNLIMITED, is_rate
from django_jobs.backends.rates import Rate, Usage
from django_jobs.backends.registry import backends
from django_jobs.backends.values import reason_of
from django_jobs.clock import to_datetime
from django_jobs.conf import get_settings
from django_jobs.exceptions import HandlerRefused
from django_jobs.handlers.registry import check_allowed, registry
from django_jobs.ids import parse_id
from django_jobs.models import (
    FailedJob,
    Job,
    JobResult,
    JobState,
    OperatorEvent,
    QueueControl,
    QueueMeter,
)
from django_jobs.operations.brokers import open_breakers, until
from django_jobs.operations.causes import Cause, not_kept, span
from django_jobs.operations.workers import serves, workers
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.backends.base import Account, Glimpse
    from django_jobs.models import OutboxJob

_FAILURES = {"queue": "rejected jobs", "handler": "failures"}
COUNTED_AT_MOST = 1000
HOLDERS_SHOWN = 3

# Causes for a job in a database. Each function yields what it checks for, or nothing.


def _running_causes(job: Job, alias: str, now: int) -> Iterator[Cause]:
    """For a leased job: which worker holds it, until when, and whether that worker is lost."""
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
        yield from _worker_causes(job, alias)
    if job.cancel_requested:
        yield Cause(
            "stop-asked",
            "It was asked to stop; its handler is notified, and stopped if it does not react.",
            "Wait a few seconds.",
        )
    yield from _suspect_causes(job)


def _waiting_causes(job: Job, alias: str, now: int) -> Iterator[Cause]:
    """For a job without a lease: everything that keeps it from being claimed and run."""
    if job.state not in JobState:
        text = f"Its state is {job.state}, which is none: no worker sees the job."
        way_out = "It was written by other means than django_jobs. End it with jobs_cancel "
        yield Cause("no-state", text, f"{way_out}{job.pk}.")
        return
    obstacles = list(_obstacles(job, alias, now))
    yield from obstacles
    if not obstacles:
        yield from _turn_causes(job, alias)


def _obstacles(job: Job, alias: str, now: int) -> Iterator[Cause]:
    yield from _due_causes(job, now)
    control = QueueControl.objects.using(alias).filter(backend=job.backend, queue=job.queue).first()
    if control is not None and control.paused:
        yield _pause_cause(job, control, alias)
    yield from _worker_causes(job, alias)
    yield from _limit_causes(job, control, alias, now)
    yield from _breaker_causes(job, now)
    yield from _key_causes(job, alias)
    yield from _handler_causes(job.handler, job.queue)
    if job.cancel_requested:
        yield Cause(
            "stop-asked",
            "It was asked to stop while it ran; it will be cancelled when its turn comes.",
            f"To end it now: jobs_cancel {job.pk}.",
        )
    if job.expires is not None and job.expires <= now:
        yield Cause(
            "expired",
            f"The time it was given ended {span(now - job.expires)} ago: it will not be run, "
            "but become a dead letter when its turn comes.",
            "Replay it from the dead letters: that gives it new time.",
        )
    yield from _suspect_causes(job)


def _due_causes(job: Job, now: int) -> Iterator[Cause]:
    if job.due <= now:
        return
    moment = f"{to_datetime(job.due):%Y-%m-%d %H:%M:%S} UTC"
    why = f" It waits after {job.attempts} failed attempts." if job.attempts else ""
    yield Cause(
        "not-due", f"It is not due until {moment}, in {span(job.due - now)}.{why}", "Wait for it."
    )


def _pause_cause(job: Job, control: QueueControl, alias: str) -> Cause:
    events = OperatorEvent.objects.using(alias).filter(
        action="pause", backend=job.backend, queue=job.queue
    )
    event = events.order_by("-at", "-pk").first()
    who = (event.actor if event else control.changed_by) or "an unknown user"
    since = event.at if event else control.changed_at
    when = "" if since is None else f" at {since:%Y-%m-%d %H:%M:%S %Z}".rstrip()
    why = f" ({control.reason})" if control.reason else ""
    text = f"The queue {job.queue} was paused by {who}{when}{why}."
    return Cause("paused", text, f"When that is over: jobs_queue resume {job.queue}.")


def _worker_causes(job: Job, alias: str) -> Iterator[Cause]:
    present = [seen.worker for seen in workers(alias) if seen.is_present]
    of_backend = [worker for worker in present if worker.backend == job.backend]
    listening = [worker for worker in of_backend if serves(worker, job.queue)]
    start = f"Start one: manage.py jobs_work --queue {job.queue}"
    if job.backend != get_settings().default_backend:
        start += f" --backend {job.backend}"
    if not listening:
        text = f"No worker listens on the queue {job.queue}"
        others = ", ".join(sorted({worker.queues for worker in of_backend}))
        text += f": those there are serve {others}." if others else ": no worker is running at all."
        yield Cause("no-worker", text, f"{start}.")
    elif all(worker.draining for worker in listening):
        text = f"Every worker that listens on the queue {job.queue} was asked to drain."
        yield Cause("no-worker", text, f"{start}.")


def _limit_causes(job: Job, control: QueueControl | None, alias: str, now: int) -> Iterator[Cause]:
    configured = get_settings().queues.get(job.queue)
    rate = (configured and configured.rate_limit) or ""
    if control is not None and is_rate(control.rate_limit):
        rate = control.rate_limit
    yield from _rate_causes(job, rate, alias, now)
    places = control.concurrency if control is not None else None
    if places is not None:
        running = Job.objects.using(alias).filter(
            queue=job.queue, state=JobState.RUNNING, backend=job.backend, lease_expires__gt=now
        )
        if running.count() >= places:
            text = f"The queue {job.queue} runs {places} at a time, and all places are taken."
            way_out = f"Wait, or jobs_queue set {job.queue} concurrency=…"
            yield Cause("concurrency", text, way_out)


def _rate_causes(job: Job, text: str, alias: str, now: int) -> Iterator[Cause]:
    if not text or text == UNLIMITED:
        return
    meter = QueueMeter.objects.using(alias).filter(backend=job.backend, queue=job.queue).first()
    usage = Usage.read(Rate.parse(text), meter.starts if meter else None, now)
    if not usage.free():
        yield Cause(
            "rate-limited",
            f"The rate limit of the queue {job.queue}, {text}, is used up for the next "
            f"{span(usage.free_in(now))}.",
            f"Wait, or jobs_queue set {job.queue} rate_limit=…",
        )


def _breaker_causes(job: Job, now: int) -> Iterator[Cause]:
    """Open circuit breakers of the job's queue and of its handler."""
    concerned = {("queue", job.queue), ("handler", job.handler)}
    for breaker in open_breakers():
        if breaker.backend != job.backend or (breaker.kind, breaker.name) not in concerned:
            continue
        command = f"jobs_queue reset-breaker {job.queue}"
        if breaker.kind == "handler":
            command += f" --handler {job.handler}"
        yield Cause(
            "breaker-open",
            f"The circuit breaker of the {breaker.kind} {breaker.name} is {until(breaker, now)}, "
            f"after {breaker.failures} {_FAILURES[breaker.kind]} in a row.",
            f"Repair what fails; it closes when a job that it lets try goes well, or by {command}.",
        )


def _key_causes(job: Job, alias: str) -> Iterator[Cause]:
    running = Job.objects.using(alias).filter(state=JobState.RUNNING)
    limits = {"concurrency_key": max(job.concurrency or 1, 1), "idempotency_key": 1}
    for column, limit in limits.items():
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


def _handler_causes(key: str, queue: str) -> Iterator[Cause]:
    """A handler that is not registered in this process, or that its queue does not allow."""
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
        text = f"It will be rejected when its turn comes: {refusal}"
        yield Cause("not-allowed", text, "Allow the handler, or cancel the job.")


def _suspect_causes(job: Job) -> Iterator[Cause]:
    if job.suspect:
        yield Cause(
            "suspect",
            "It is a suspect: an earlier lease of it ended without a verdict, so it is run alone, "
            f"in a process of its own. It was charged {job.crashes} crashes so far.",
            "Nothing to do. A worker that has no process free for it puts it off, for a minute "
            "at most.",
        )


def _turn_causes(job: Job, alias: str) -> Iterator[Cause]:
    """For a job that only waits for others that come first."""
    if job.state == JobState.BLOCKED:
        text = "It waits for a key that has a place, and others of its queue go on before it."
        yield Cause("its-turn", text, "It is made ready when they have had their turn.")
        return
    ready = Job.objects.using(alias).filter(queue=job.queue, state=JobState.READY)
    earlier = Q(rank__lt=job.rank) | Q(rank=job.rank, due__lt=job.due)
    ahead = ready.filter(earlier).order_by("rank", "due")[: COUNTED_AT_MOST + 1].count()
    count = f"more than {COUNTED_AT_MOST}" if ahead > COUNTED_AT_MOST else str(ahead)
    text = "Nothing is in its way"
    if ahead:
        text += f" but {count} jobs of its queue that come before it"
    yield Cause("its-turn", f"{text}.", "It runs when a worker is free; more workers help.")


# Causes for a job at a broker, which can be asked for less than a database.


def _broker_job_causes(glimpse: Glimpse, backend: str) -> Iterator[Cause]:
    """The causes for a live job, from a glimpse of it."""
    handler = str(glimpse.message.index.get("handler") or "")
    over = glimpse.lease_expires is not None and glimpse.lease_expires <= (
        glimpse.extra.get("seen_at") or 0
    )
    if over:
        text = "Its lease ended without a verdict: its worker is lost, or cannot reach the broker."
        yield Cause("lease-ended", text, "Workers return it by themselves. Without one: jobs_reap.")
    elif glimpse.state == "running":
        yield Cause("leased", "A worker has it just now.", "Wait for its end.")
    elif glimpse.state == "scheduled":
        moment = f"{to_datetime(glimpse.due):%Y-%m-%d %H:%M:%S} UTC"
        yield Cause("not-due", f"It is not due until {moment}.", "Wait.")
    elif glimpse.state == "blocked":
        text = "Others hold the key that it shares with them."
        yield Cause("key-held", text, "It is released when one of those jobs ends.")
    yield from _glimpse_causes(glimpse)
    if glimpse.state != "running" or over:
        yield from _broker_queue_causes(glimpse.queue, backend, handler)
    yield from _handler_causes(handler, glimpse.queue)


def _glimpse_causes(glimpse: Glimpse) -> Iterator[Cause]:
    """That the job was asked to stop, or is a suspect since an earlier lease."""
    if glimpse.extra.get("asked_to_stop"):
        text = "It was asked to stop while it ran."
        yield Cause("stop-asked", text, "Wait: it is stopped, or cancelled when its turn comes.")
    if glimpse.extra.get("suspect"):
        yield Cause(
            "suspect",
            "It is a suspect: an earlier lease of it ended without a verdict, so it is run alone, "
            "in a process of its own. It was charged "
            f"{glimpse.message.header.crashes} crashes so far.",
            "Nothing to do. A worker that has no process free for it puts it off, for a minute "
            "at most.",
        )


def _broker_limit_causes(queue: str, backend: str, control: QueueControl | None) -> Iterator[Cause]:
    """A limit that keeps the jobs of a queue from starting just now."""
    broker = backends[backend]
    if not isinstance(broker, KeepsBreakers) or broker.held_back([queue]) != "rate-limited":
        return
    places = None if control is None else control.concurrency
    if places is not None and (running := broker.stats(queue).running) >= places:
        text = f"{running} jobs of the queue {queue} run, and it lets {places} run at a time."
        yield Cause("concurrency", text, f"Wait, or jobs_queue set {queue} concurrency=…")
    else:
        text = f"The rate limit of the queue {queue} is used up for now."
        yield Cause("rate-limited", text, f"Wait, or jobs_queue set {queue} rate_limit=…")


def _broker_queue_causes(queue: str, backend: str, handler: str) -> Iterator[Cause]:
    alias, job = jobs_database(), Job(backend=backend, queue=queue, handler=handler)
    control = QueueControl.objects.using(alias).filter(backend=backend, queue=queue).first()
    if control is not None and control.paused:
        yield _pause_cause(job, control, alias)
    if not backends[backend].ends_with_process:
        yield from _worker_causes(job, alias)
    yield from _broker_limit_causes(queue, backend, control)
    for breaker in open_breakers():
        if breaker.backend == backend and (breaker.kind, breaker.name) in {
            ("queue", queue),
            ("handler", handler),
        }:
            text = f"The circuit breaker of the {breaker.kind} {breaker.name} is {breaker.state}."
            yield Cause("breaker-open", text, f"Wait, or jobs_queue reset-breaker {queue}.")


def _result_cause(account: Account) -> Cause:
    """How a job ended, from the result that its broker keeps."""
    sentences = {"succeeded": "It succeeded", "cancelled": "It was cancelled"}
    way_out = "Nothing is left to run. Enqueue it again if the work is wanted once more."
    text = sentences.get(account.status, f"It ended: {account.status}")
    text += f": {account.reason}" if account.reason else "."
    text += not_kept(account.value_json)
    return Cause("cancelled" if account.status == "cancelled" else "ended", text, way_out)


# Finding the job, and putting its causes together.


UNKNOWN, ENDED, DEAD, OUTBOX = "unknown", "ended", "dead", "in the outbox"
UNREADABLE = "unreadable"
VALUE_BEGINS = 1000  # a reason why it is not kept is shorter
_UNREADABLE = Cause(
    UNREADABLE,
    "Its row cannot be read: it was written by other means than django_jobs.",
    "Nothing to do: a worker makes a dead letter of it when its turn comes.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The state of a job, and why it does not run; without causes nothing is in its way."""

    job_id: str
    state: str
    queue: str = ""
    backend: str = ""
    handler: str = ""
    causes: tuple[Cause, ...] = field(default=())

    @property
    def found(self) -> bool:
        return self.state != UNKNOWN


def explain(job_id: str) -> Explanation:
    """Explain why a job is not running. Changes nothing; any id may be passed."""
    key = parse_id(job_id)
    if key is None:
        return _explain_unknown(
            job_id, f"{job_id!r} is no id of a job; jobs_list names those that wait."
        )
    # A job moves from the outbox to its backend and then ends, so look in that order.
    return (
        _find_in_outbox(key)
        or _find_in_database(key)
        or _find_at_broker(key)
        or _explain_unknown(
            key,
            "No job of this id waits, runs or is on record. It never was (was its enqueue rolled "
            "back?), or it ended and its result is no longer kept (RESULT_TTL).",
        )
    )


def _find_in_outbox(key: str) -> Explanation | None:
    rows = (outbox.find(name, key) for name in get_settings().backends)
    return next((_explain_outbox_row(row) for row in rows if row), None)


def _find_in_database(key: str) -> Explanation | None:
    for alias in job_databases(get_settings()):
        jobs = Job.objects.using(alias).filter(pk=key)
        if job := of_known_kinds(jobs).defer("body", "meta", "created_at").first():
            return explain_row(job, alias)
        if jobs.exists():
            return Explanation(job_id=key, state=UNREADABLE, causes=(_UNREADABLE,))
        if ended := _explain_ended(key, alias):
            return ended
    return None


def _find_at_broker(key: str) -> Explanation | None:
    for name, config in get_settings().backends.items():
        if database_of(config) is None and (explanation := _explain_broker_job(key, name)):
            return explanation
    return None


def explain_row(job: Job, alias: str) -> Explanation:
    """Explain a live job whose row has been read already."""
    now = store_now(alias)
    causes_of = _running_causes if job.state == JobState.RUNNING else _waiting_causes
    return Explanation(
        job_id=str(job.pk),
        state=JobState.label_of(job.state),
        queue=job.queue,
        backend=job.backend,
        handler=job.handler,
        causes=tuple(causes_of(job, alias, now)),
    )


def _explain_ended(key: str, alias: str) -> Explanation | None:
    results = JobResult.objects.using(alias).filter(pk=key).defer("body", "value")
    result = results.annotate(value_begins=Left("value", VALUE_BEGINS)).first()
    if result is not None:
        why = reason_of(result.status, result.output)
        cause = Cause(
            ENDED if result.status != "cancelled" else "cancelled",
            f"It {_ENDINGS.get(result.status, 'ended')}"
            + f" at {result.finished_at:%Y-%m-%d %H:%M:%S %Z}".rstrip()
            + (f": {why}" if why else ".")
            + not_kept(result.value_begins),
            "Nothing is left to run. Enqueue it again if the work is wanted once more.",
        )
        about = {"queue": result.queue, "backend": result.backend, "handler": result.handler}
        return Explanation(job_id=key, state=result.status, causes=(cause,), **about)
    dead = FailedJob.objects.using(alias).filter(job_id=key).defer("body", "traceback").first()
    if dead is None:
        return None
    about = {"queue": dead.queue, "backend": dead.backend, "handler": dead.handler}
    return Explanation(job_id=key, state=DEAD, causes=(_dead_letter_cause(dead),), **about)


_ENDINGS = {
    "succeeded": "succeeded",
    "skipped": "was skipped: the work of its idempotency key was done already",
    "cancelled": "was cancelled",
}


def _dead_letter_cause(dead: FailedJob) -> Cause:
    when = f"{dead.failed_at:%Y-%m-%d %H:%M:%S %Z}".rstrip()
    text = f"It is dead since {when}: {dead.reason}."
    if dead.resolution == "replayed":
        text += f" It was replayed as {dead.replayed_as}."
        return Cause(DEAD, text, f"Ask about the new job: jobs_explain {dead.replayed_as}.")
    if dead.resolution:
        return Cause(DEAD, f"{text} It was {dead.resolution}.", "Enqueue it again if it is wanted.")
    way_out = f"Read why with jobs_dlq show {dead.pk}; then jobs_dlq replay {dead.pk}, or discard."
    return Cause(DEAD, text, way_out)


def _explain_outbox_row(row: OutboxJob) -> Explanation:
    """Explain a job on its way to a broker."""
    since = to_datetime(row.created)
    text = f"It waits in the outbox since {since:%Y-%m-%d %H:%M:%S} UTC: {row.backend} has not "
    text += "been given it yet."
    if row.refusals:
        text += f" It was refused there {row.refusals} times, the last time so: {row.problem}"
    way_out = f"The workers of {row.backend} move it on: does one run? jobs_status tells."
    causes = (Cause("in-outbox", text, way_out), *_handler_causes(row.handler, row.queue))
    return Explanation(
        job_id=str(row.job_id),
        state=OUTBOX,
        queue=row.queue,
        backend=row.backend,
        handler=row.handler,
        causes=causes,
    )


def _explain_broker_job(key: str, name: str) -> Explanation | None:
    """Explain a job from what its broker knows of it, live or ended."""
    backend = backends[name]
    if can_peek(backend) and (glimpse := backend.find(key)):
        return Explanation(
            job_id=glimpse.id,
            state=glimpse.state,
            queue=glimpse.queue,
            backend=name,
            handler=str(glimpse.message.index.get("handler") or ""),
            causes=tuple(_broker_job_causes(glimpse, name)),
        )
    account = backend.account(key) if can_account(backend) else None
    if account is None:
        return None
    return Explanation(
        job_id=key,
        state=account.status,
        queue=account.queue,
        backend=name,
        handler=account.handler,
        causes=(_result_cause(account),),
    )


def _explain_unknown(job_id: str, text: str) -> Explanation:
    way_out = "Look with jobs_list, jobs_list --state succeeded and jobs_dlq list."
    return Explanation(job_id=job_id, state=UNKNOWN, causes=(Cause(UNKNOWN, text, way_out),))


__all__ = ["Cause", "Explanation", "explain", "explain_row", "span"]
