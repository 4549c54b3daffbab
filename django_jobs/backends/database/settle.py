"""Settle: every way to end a lease. Each is one transaction and needs the current token.

A lease that has expired but was not reaped yet can still be settled: its token is the current
one, and accepting it saves a second run.

Every transition filters by id and token only: a row that is not running has none. With the state
as a condition PostgreSQL might read all running jobs from the index of lease ends, which seems
small if it was analyzed in a quiet hour.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import BigIntegerField, Case, F, Value, When
from django.db.models.functions import Coalesce, Greatest, Least
from django.db.models.lookups import GreaterThan

from django_jobs.backends import crash_events
from django_jobs.backends.base import Charge, Settled
from django_jobs.backends.database.keys import COLUMNS, Keys, keys_of, no_hints, wake
from django_jobs.backends.database.unreadable import Rows, past_unreadable
from django_jobs.backends.ended_jobs import attempt_of, failed_job_of
from django_jobs.clock import to_microseconds
from django_jobs.db.dead_letters import add_dead_letter
from django_jobs.db.transactions import in_reading, in_transition
from django_jobs.models import Job, JobAttempt, JobState
from django_jobs.wire.envelope import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from django_jobs.backends.base import AttemptRecord, Failure, Lease
    from django_jobs.backends.database.keys import Notify
    from django_jobs.db.clock import StoreClock
    from django_jobs.wire.envelope import Header

BRIEFLY = (0.005, 0.02, 0.05, 0.1)
"""The pauses, in seconds, after which a settle tries a locked row again."""


def held_row(alias: str, lease: Lease) -> QuerySet[Job]:
    """The row of a lease, if this lease still holds it."""
    return Job.objects.using(alias).filter(pk=lease.id, lease_token=lease.token)


def candidates(alias: str, leases: Sequence[Lease]) -> QuerySet[Job]:
    """The rows of leases, whether they still hold them or not."""
    ids = sorted(lease.id for lease in leases)
    return Job.objects.using(alias).filter(pk__in=ids).order_by("pk")


def matching(alias: str, leases: Sequence[Lease], rows: QuerySet[Job]) -> set[str]:
    """The ids of leases whose row has their own token."""
    del alias
    tokens = {str(pk): token for pk, token in rows.values_list("pk", "lease_token")}
    return {lease.id for lease in leases if tokens.get(lease.id) == lease.token}


def lock_held(alias: str, leases: Sequence[Lease], *, waits: bool) -> set[str]:
    """Lock the rows of leases that are still held, and return their ids.

    Rows locked by others are left out where the database can skip them, unless the caller
    ``waits``, as it has to inside a transaction that ends as a whole.
    """
    skips = connections[alias].features.has_select_for_update_skip_locked and not waits
    # In the order of their primary keys, so that two settles cannot deadlock.
    rows = candidates(alias, leases).select_for_update(skip_locked=skips)
    return matching(alias, leases, rows)


def locked_by_others(alias: str, leases: Sequence[Lease], held: set[str]) -> set[str]:
    """The ids of leases that are still held, but whose rows ``lock_held`` left out."""
    if len(held) == len(leases):
        return set()
    missing = [lease for lease in leases if lease.id not in held]
    return matching(alias, missing, candidates(alias, missing))


def past_brief_locks(
    settle: Callable[[Sequence[Lease]], list[Settled]], leases: Sequence[Lease]
) -> list[Settled]:
    """Settle, and for a moment try again the rows that were left out because they were locked.

    On MariaDB a claim briefly locks rows that it then passes over.
    """
    answers = settle(leases)
    for pause in BRIEFLY:
        left = [place for place, settled in enumerate(answers) if settled is Settled.UNKNOWN]
        if not left:
            break
        time.sleep(pause)
        for place, answer in zip(left, settle([leases[place] for place in left]), strict=True):
            answers[place] = answer
    return answers


def answers_of(leases: Sequence[Lease], settled: set[str], locked: set[str]) -> list[Settled]:
    """The answer for each lease."""
    return [
        Settled.SETTLED
        if lease.id in settled
        else (Settled.UNKNOWN if lease.id in locked else Settled.LOST)
        for lease in leases
    ]


def delete(alias: str, leases: Sequence[Lease]) -> int:
    """Delete the rows of leases. Several rows must have been locked before."""
    ids = [lease.id for lease in leases]
    tokens = {lease.token for lease in leases}
    held = Job.objects.using(alias).filter(pk__in=ids, lease_token__in=tokens)
    return int(held._raw_delete(alias))  # noqa: SLF001 - no signals, no collector


ATTEMPTS_KEPT = 100
_WITHOUT_LEASE: dict[str, Any] = {
    "lease_token": None,
    "lease_expires": None,
    "worker": None,
}


def nack(
    alias: str,
    clock: StoreClock,
    lease: Lease,
    delay_seconds: float | None,
    charge: Charge,
    attempt: AttemptRecord | None,
    notify: Notify = no_hints,
) -> Settled:
    """Give a job back; without a delay it returns to the place it had."""
    changes = _given_back(clock, delay_seconds, charge, lease.message.header)
    shared = keys_of([lease])

    def work(_: BaseDatabaseWrapper) -> Settled:
        keys = Keys(alias, clock, shared, notify)
        if not held_row(alias, lease).update(**changes):
            if charge is Charge.NOTHING:
                _take_losses_back(alias, [lease])
            return Settled.LOST
        keys.wake()
        if attempt is not None:
            _keep(alias, lease, attempt)
        return Settled.SETTLED

    return in_transition(alias, work, sees_commits=bool(shared))


def _put_off_since(clock: StoreClock, charge: Charge) -> Any:
    """The moment of the first put-off. A moment in the future is not believed."""
    if charge is not Charge.PUT_OFF:
        return None
    now = clock.now()
    return Least(Coalesce(F("put_off_since"), now), now)


def _given_back(
    clock: StoreClock, delay_seconds: float | None, charge: Charge, counted: Header
) -> dict[str, Any]:
    """The changes to the row of a job that is given back."""
    changes: dict[str, Any] = {**_WITHOUT_LEASE, "state": JobState.READY}
    # A suspect that was never started returns to its place, and stays a suspect.
    if charge is not Charge.NOTHING or delay_seconds is not None:
        changes["suspect"] = charge in {Charge.CRASH, Charge.SUSPICION}
        changes["put_off_since"] = _put_off_since(clock, charge)
        changes["reaped_token"] = None  # this lease's outcome counts, not an earlier loss
    if delay_seconds is not None:
        due = _no_earlier(clock.now() + to_microseconds(delay_seconds))
        waits = When(GreaterThan(due, clock.now()), then=Value(JobState.SCHEDULED))
        changes |= {"state": Case(waits, default=Value(JobState.READY)), "due": due}
    # A counter that was set to its maximum stays there.
    if charge is Charge.ATTEMPT and counted.attempts < FULL:
        changes["attempts"] = F("attempts") + 1
    elif charge is Charge.CRASH and counted.crashes < FULL:
        changes["crashes"] = F("crashes") + 1
    return changes


def nack_all(
    alias: str, clock: StoreClock, leases: Sequence[Lease], notify: Notify = no_hints
) -> list[Settled]:
    """Give jobs back to the places they had; a suspect that was never started stays one."""
    waits = connections[alias].in_atomic_block

    def settle(leases: Sequence[Lease]) -> list[Settled]:
        shared = keys_of(leases)

        def work(_: BaseDatabaseWrapper) -> list[Settled]:
            keys = Keys(alias, clock, shared, notify)
            answers = _give_back_all(alias, leases, waits=waits)
            keys.wake()
            return answers

        return in_transition(alias, work, sees_commits=bool(shared))

    return past_brief_locks(settle, leases)


def _give_back_all(alias: str, leases: Sequence[Lease], *, waits: bool) -> list[Settled]:
    held = lock_held(alias, leases, waits=waits)
    rows = Job.objects.using(alias).filter(pk__in=sorted(held))
    rows.update(**_WITHOUT_LEASE, state=JobState.READY)
    answers = answers_of(leases, held, locked_by_others(alias, leases, held))
    lost = zip(leases, answers, strict=True)
    _take_losses_back(alias, [lease for lease, answer in lost if answer is Settled.LOST])
    return answers


def _take_losses_back(alias: str, lost: Sequence[Lease]) -> None:
    """Undo what reaping made of these losses: their worker is alive, so there was no crash."""
    by_token: dict[str, list[str]] = {}
    for lease in lost:
        by_token.setdefault(lease.token, []).append(lease.id)
    for token, ids in by_token.items():
        reaped = Job.objects.using(alias).filter(pk__in=ids, reaped_token=token)
        reaped.filter(reap_charged=False).update(suspect=False, reaped_token=None)
        # These were suspects before, and stay suspects.
        reaped.filter(reap_charged=True).update(crashes=F("crashes") - 1, reaped_token=None)


def abandon(
    alias: str, clock: StoreClock, lease: Lease, failure: Failure, notify: Notify = no_hints
) -> Settled:
    """Move a job to the dead letters, if its lease is still held."""
    shared = keys_of([lease])

    def work(connection: BaseDatabaseWrapper) -> Settled:
        keys = Keys(alias, clock, shared, notify)
        if not delete(alias, [lease]):
            return Settled.LOST
        keys.wake()
        dead = failed_job_of(lease, failure, clock.read(connection))
        add_dead_letter(alias, dead)
        if failure.attempt is not None:
            _keep(alias, lease, failure.attempt)
        return Settled.SETTLED

    return in_transition(alias, work, sees_commits=bool(shared))


def _keep(alias: str, lease: Lease, attempt: AttemptRecord) -> None:
    """Record a failed run. Of a job that fails for ever only the latest runs are kept."""
    row = attempt_of(lease, attempt)
    row.save(using=alias, force_insert=True)
    if attempt.number > ATTEMPTS_KEPT:
        attempts = JobAttempt.objects.using(alias).filter(job_id=row.job_id)
        attempts.filter(number__lte=attempt.number - ATTEMPTS_KEPT).delete()


def renew(
    alias: str, clock: StoreClock, leases: Sequence[Lease], lease_seconds: float
) -> list[Settled]:
    """Extend held leases. A lease whose row is locked is just being settled."""

    def work(connection: BaseDatabaseWrapper) -> list[Settled]:
        held = matching(alias, leases, candidates(alias, leases))
        # Where rows cannot be skipped, this waits for the settle and then finds the lease lost.
        skips = connection.features.has_select_for_update_skip_locked
        free = candidates(alias, leases).select_for_update(skip_locked=skips)
        renewable = matching(alias, leases, free)
        expires = clock.now() + to_microseconds(lease_seconds)
        Job.objects.using(alias).filter(pk__in=renewable).update(lease_expires=expires)
        return answers_of(leases, renewable, held)

    return in_transition(alias, work)


def return_claimed(alias: str, clock: StoreClock, token: str, notify: Notify = no_hints) -> int:
    """Give back all jobs of a claim whose answer did not arrive; return how many.

    Does not lock the rows of their keys, which another transaction may hold for longer than a
    lease: a place that becomes free admits no job by mistake, and waiting jobs are woken
    afterwards, or when these jobs have run.
    """
    # Among running jobs, for which there is an index; the token has none.
    mine = Job.objects.using(alias).filter(
        state=JobState.RUNNING, lease_expires__gt=0, lease_token=token
    )
    claimed = in_reading(alias, lambda: list(mine.values_list("pk", *COLUMNS)))
    if not claimed:
        return 0
    rows = Job.objects.using(alias).filter(pk__in=[pk for pk, *_ in claimed], lease_token=token)
    changes = {**_WITHOUT_LEASE, "state": JobState.READY, "deliveries": F("deliveries") - 1}
    returned = in_transition(alias, lambda _: rows.update(**changes))
    wake(alias, clock, {key for _, *keys in claimed for key in keys if key}, notify)
    return returned


_EVENT_COLUMNS = ("queue", "handler", "attempts", "crashes", "trace_id")


def reap_expired(
    alias: str,
    clock: StoreClock,
    backend: str,
    queue: str | None,
    limit: int,
    notify: Notify = no_hints,
) -> int:
    """Return jobs whose lease ended without a verdict; those that ended first come first."""
    expired = Job.objects.using(alias).filter(
        backend=backend, state=JobState.RUNNING, lease_expires__lte=clock.now()
    )
    if queue is not None:
        expired = expired.filter(queue=queue)
    ended = expired.order_by("lease_expires").values_list("pk", *COLUMNS)

    def reap() -> int:
        seen = in_reading(alias, lambda: list(ended[:limit]))
        shared = sorted({key for _, *keys in seen for key in keys if key})
        free = [pk for pk, *keys in seen if not any(keys)]
        keyed = [pk for pk, *keys in seen if any(keys)]
        reaped = 0
        # Separately, so that a locked key does not hold up jobs without keys.
        for chosen, keys in ((free, []), (keyed, shared)):
            if chosen:
                reaped += _reap(alias, clock, expired, chosen, keys, notify)
        return reaped

    def met() -> list[Rows]:
        return [Rows(expired.order_by("lease_expires"), limit)]

    return past_unreadable(alias, clock, reap, met)


def _reap(
    alias: str,
    clock: StoreClock,
    expired: QuerySet[Job],
    chosen: Sequence[Any],
    shared: Sequence[str],
    notify: Notify,
) -> int:
    def work(connection: BaseDatabaseWrapper) -> tuple[int, list[dict[str, Any]]]:
        keys = Keys(alias, clock, shared, notify)
        rows, still = Job.objects.using(alias).filter(pk__in=chosen), expired
        if connection.features.has_select_for_update_skip_locked:
            # By primary key alone: with more conditions PostgreSQL may read all expired leases.
            rows, still = rows.select_for_update(skip_locked=True), Job.objects.using(alias)
        columns = rows.annotate(now=clock.now()).values(
            "pk", "suspect", "lease_expires", "now", *_EVENT_COLUMNS
        )
        lost = [row for row in columns if (row["lease_expires"] or row["now"] + 1) <= row["now"]]
        # Rows that were not locked may have been renewed or settled since. A column is assigned
        # after those computed from it, because on MySQL an assignment sees the earlier ones.
        reaped = still.filter(pk__in=[row["pk"] for row in lost]).update(
            state=_if_charged(Value(JobState.SCHEDULED), Value(JobState.READY)),
            due=_if_charged(_due_after_crash(clock), F("due")),
            crashes=Least(F("crashes"), Value(FULL)) + _if_charged(Value(1), Value(0)),
            reap_charged=F("suspect"),
            reaped_token=F("lease_token"),
            suspect=True,
            **_WITHOUT_LEASE,
        )
        keys.wake()
        return reaped, lost

    reaped, lost = in_transition(alias, work, sees_commits=bool(shared))
    for row in lost:
        if row["suspect"]:
            crash_events.emit_crashed(
                str(row["pk"]), **{name: row[name] for name in _EVENT_COLUMNS}
            )
    return reaped


def _if_charged(then: Any, otherwise: Any) -> Case:
    """One value where the loss of the lease is a crash, as it is for a suspect, or the other."""
    return Case(When(suspect=True, then=then), default=otherwise)


def _due_after_crash(clock: StoreClock) -> Any:
    """When a job runs again, by the crashes it had before."""
    *delays, last = (Value(to_microseconds(seconds)) for seconds in crash_events.CRASH_DELAYS)
    whens = (When(crashes=crashes, then=delay) for crashes, delay in enumerate(delays))
    return _no_earlier(clock.now() + Case(*whens, default=last))


def _no_earlier(moment: Any) -> Greatest:
    """A moment from now, but never before the job was due: clocks may step back."""
    return Greatest(moment, F("due"), output_field=BigIntegerField())
