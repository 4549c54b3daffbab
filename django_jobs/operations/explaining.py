"""Why a job is not running: every cause there is, in the order in which it bites.

All are told, not only the first: whoever resumes a queue wants to know as well that no
worker listens on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db.models.functions import Left

from django_jobs import outbox
from django_jobs.backends.database.unreadable import of_known_kinds
from django_jobs.backends.registry import backends
from django_jobs.backends.values import reason_of
from django_jobs.clock import to_datetime
from django_jobs.conf import get_settings
from django_jobs.db.home import store_now
from django_jobs.ids import parse_id
from django_jobs.models import FailedJob, Job, JobResult, JobState
from django_jobs.operations import elsewhere, hindrances
from django_jobs.operations.causes import Cause, not_kept, span
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from django_jobs.models import OutboxJob

UNKNOWN, ENDED, DEAD, OUTBOX = "unknown", "ended", "dead", "in the outbox"
UNREADABLE = "unreadable"
VALUE_BEGINS = 1000  # a reason why it is not kept is shorter
_UNREADABLE = Cause(
    UNREADABLE,
    "Its row holds what cannot be read: somebody wrote it past us.",
    "Nothing to do: a worker makes a dead letter of it when its turn comes.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where a job stands, and why it does not run; without causes nothing is in its way."""

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
    """Why a job is not running. It changes nothing, and any id may be asked about."""
    key = parse_id(job_id)
    if key is None:
        return _unknown(job_id, f"{job_id!r} is no id of a job; jobs_list names those that wait.")
    # A job goes from the outbox to its backend and then ends: it is looked for in that order.
    return (
        _waits_in_outbox(key)
        or _in_database(key)
        or _with_broker(key)
        or _unknown(
            key,
            "No job of this id waits, runs or is on record. It never was (was its enqueue rolled "
            "back?), or it ended and its result is no longer kept (RESULT_TTL).",
        )
    )


def _waits_in_outbox(key: str) -> Explanation | None:
    found = (outbox.find(name, key) for name in get_settings().backends)
    return next((_in_outbox(row) for row in found if row), None)


def _in_database(key: str) -> Explanation | None:
    for alias in job_databases(get_settings()):
        jobs = Job.objects.using(alias).filter(pk=key)
        if job := of_known_kinds(jobs).defer("body", "meta", "created_at").first():
            return explain_row(job, alias)
        if jobs.exists():
            return Explanation(job_id=key, state=UNREADABLE, causes=(_UNREADABLE,))
        if ended := _ended(key, alias):
            return ended
    return None


def _with_broker(key: str) -> Explanation | None:
    for name, config in get_settings().backends.items():
        if database_of(config) is None and (found := _elsewhere(key, name)):
            return found
    return None


def explain_row(job: Job, alias: str) -> Explanation:
    """The same for a live job that was read already."""
    now = store_now(alias)
    found = hindrances.of_running if job.state == JobState.RUNNING else hindrances.of_waiting
    return Explanation(
        job_id=str(job.pk),
        state=JobState.label_of(job.state),
        queue=job.queue,
        backend=job.backend,
        handler=job.handler,
        causes=tuple(found(job, alias, now)),
    )


def _ended(key: str, alias: str) -> Explanation | None:
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
    return Explanation(job_id=key, state=DEAD, causes=(_of_dead(dead),), **about)


_ENDINGS = {
    "succeeded": "succeeded",
    "skipped": "was skipped: the work of its idempotency key was done already",
    "cancelled": "was cancelled",
}


def _of_dead(dead: FailedJob) -> Cause:
    when = f"{dead.failed_at:%Y-%m-%d %H:%M:%S %Z}".rstrip()
    told = f"It is dead since {when}: {dead.reason}."
    if dead.resolution == "replayed":
        told += f" It was replayed as {dead.replayed_as}."
        return Cause(DEAD, told, f"Ask about the new job: jobs_explain {dead.replayed_as}.")
    if dead.resolution:
        return Cause(DEAD, f"{told} It was {dead.resolution}.", "Enqueue it again if it is wanted.")
    way_out = f"Read why with jobs_dlq show {dead.pk}; then jobs_dlq replay {dead.pk}, or discard."
    return Cause(DEAD, told, way_out)


def _in_outbox(row: OutboxJob) -> Explanation:
    """A job on its way to a broker."""
    since = to_datetime(row.created)
    told = f"It waits in the outbox since {since:%Y-%m-%d %H:%M:%S} UTC: {row.backend} has not "
    told += "been given it yet."
    if row.refusals:
        told += f" It was refused there {row.refusals} times, the last time so: {row.problem}"
    way_out = f"The workers of {row.backend} move it on: does one run? jobs_status tells."
    causes = (Cause("in-outbox", told, way_out), *hindrances.of_handler(row.handler, row.queue))
    return Explanation(
        job_id=str(row.job_id),
        state=OUTBOX,
        queue=row.queue,
        backend=row.backend,
        handler=row.handler,
        causes=causes,
    )


def _elsewhere(key: str, name: str) -> Explanation | None:
    """What a broker knows of a job, live or ended."""
    backend = backends[name]
    if backend.capabilities.peek and (found := backend.find(key)):
        return Explanation(
            job_id=found.id,
            state=found.state,
            queue=found.queue,
            backend=name,
            handler=str(found.message.index.get("handler") or ""),
            causes=tuple(elsewhere.of_live(found, name)),
        )
    account = backend.account(key) if backend.capabilities.accounts else None
    if account is None:
        return None
    return Explanation(
        job_id=key,
        state=account.status,
        queue=account.queue,
        backend=name,
        handler=account.handler,
        causes=(elsewhere.of_ended(account),),
    )


def _unknown(job_id: str, told: str) -> Explanation:
    way_out = "Look with jobs_list, jobs_list --state succeeded and jobs_dlq list."
    return Explanation(job_id=job_id, state=UNKNOWN, causes=(Cause(UNKNOWN, told, way_out),))


__all__ = ["Cause", "Explanation", "explain", "explain_row", "span"]
