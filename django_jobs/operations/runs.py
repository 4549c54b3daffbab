"""Replaying or discarding very many dead letters: a stored run, carried on in short steps.

A step may be made by anybody (a worker that runs the run's job, the page that shows it), by
one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from django.db import IntegrityError

from django_jobs.backends.database.rows import for_people
from django_jobs.db.home import jobs_database, record, store_now
from django_jobs.db.transactions import in_transition
from django_jobs.definition import Options
from django_jobs.enqueue import DefinedJob
from django_jobs.exceptions import ConfigurationError, InvalidJob
from django_jobs.models import ResolutionRun
from django_jobs.operations.matching import Matching

if TYPE_CHECKING:
    from collections.abc import Callable

CARRY_ON = "django_jobs.carry_on"
MOST_A_SECOND = 1000.0
VERBS = ("replay", "discard")
Verb = Literal["replay", "discard"]


def begin(
    verb: Verb,
    matching: Matching,
    *,
    by: str,
    reason: str = "",
    rate: float | None = None,
    token: str | None = None,
    using: str | None = None,
    witness: Callable[[ResolutionRun], None] | None = None,
) -> ResolutionRun:
    """Store a run through all open dead letters that match, and a job that carries it on.

    ``rate``: at most so many a second. Those that come to match later are left alone.
    ``token``: a run that was begun with the same one is the answer, and no other is begun.
    ``witness`` is told the run, in the transaction that stores it.
    """
    _check(verb, rate)
    alias = using or jobs_database()

    def work(_: Any) -> ResolutionRun:
        if token and (before := ResolutionRun.objects.using(alias).filter(token=token).first()):
            return before
        said = {"verb": verb, "rate": rate, "token": token, "reason": reason}
        run = _stored(alias, matching, by, said)
        if witness is not None:
            witness(run)
        return run

    try:
        run = in_transition(alias, work)
    except IntegrityError:  # pressed twice at once, and the other was first
        return ResolutionRun.objects.using(alias).get(token=token)
    if not run.total:
        end(alias, run, ResolutionRun.State.FINISHED)
    elif run.state == ResolutionRun.State.RUNNING:
        carry(run, using=alias)
    run.refresh_from_db()
    return run


def _stored(alias: str, matching: Matching, by: str, said: dict[str, Any]) -> ResolutionRun:
    letters = matching.letters(alias)
    last = letters.order_by("-pk").values_list("pk", flat=True).first()
    run = ResolutionRun.objects.using(alias).create(
        **said,
        matching=matching.document(),
        total=0 if last is None else letters.filter(pk__lte=last).count(),
        upto=last or 0,
        started_by=by[:150],
        started_at=for_people(store_now(alias)),
    )
    _tell(alias, run, f"{run.verb}-run", by, run.reason)
    return run


def _check(verb: str, rate: float | None) -> None:
    if verb not in VERBS:
        raise ValueError(f"a run can replay or discard, not {verb!r}")
    if rate is not None and not 0 < rate <= MOST_A_SECOND:
        raise ValueError(f"a rate is above 0 and at most {MOST_A_SECOND} a second, not {rate}")


def carry(run: ResolutionRun, *, using: str | None = None) -> None:
    """Enqueue the job that carries a run on, where the dead letters' own workers find it.

    If that cannot be, the run says why, and goes on while somebody looks at its page.
    """
    alias = using or jobs_database()
    first = Matching.from_document(run.matching).letters(alias).order_by("pk").first()
    if first is None:
        return
    options = Options(
        backend=first.backend,
        queue=first.queue,
        name="carry on a run through dead letters",
        unique_key=f"django_jobs-run-{alias}-{run.pk}",
        max_retries=10,
        retry=[5.0, 30.0],
        timeout=300.0,
    )
    try:
        payload = {"args": [run.pk], "kwargs": {"using": alias}}
        handle = DefinedJob(CARRY_ON, payload, options).prepare().enqueue()
    except (InvalidJob, ConfigurationError) as error:
        run.carrier, run.obstacle = "", str(error)
    else:
        run.carrier, run.obstacle = handle.id, ""
    run.save(using=alias, update_fields=["carrier", "obstacle"])


def stop(run_id: int, *, by: str, reason: str = "", using: str | None = None) -> bool:
    """End a run where it is; whether it was running. What it did stays done."""
    alias = using or jobs_database()

    def work(_: Any) -> bool:
        run = ResolutionRun.objects.using(alias).select_for_update().get(pk=run_id)
        if run.state != ResolutionRun.State.RUNNING:
            return False
        end(alias, run, ResolutionRun.State.STOPPED, by)
        _tell(alias, run, f"stop-{run.verb}-run", by, reason)
        return True

    return in_transition(alias, work)


def end(alias: str, run: ResolutionRun, state: str, by: str = "") -> None:
    """Mark a run that was running as ended."""
    running = ResolutionRun.objects.using(alias).filter(
        pk=run.pk, state=ResolutionRun.State.RUNNING
    )
    ended_at = for_people(store_now(alias))
    running.update(state=state, ended_at=ended_at, ended_by=by[:150], stepping_until=0)


def _tell(alias: str, run: ResolutionRun, action: str, by: str, reason: str) -> None:
    detail = {"run": run.pk, "matching": run.matching, "total": run.total, "rate": run.rate}
    record(
        alias,
        action,
        by=by,
        reason=reason,
        queue=run.matching.get("queue", ""),
        subject=f"run {run.pk}",
        detail=detail,
    )
