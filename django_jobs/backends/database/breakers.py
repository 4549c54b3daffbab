"""Circuit breakers in the database.

A breaker gets a row with the first failure it counts. Decisions are made with the row locked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db import connections
from django.db.models import F

from django_jobs.backends.breakers import CLOSED, Circuit
from django_jobs.backends.database.keys import COLUMNS, keys_of, no_hints, wake
from django_jobs.backends.shared_breakers import (
    PROBED_SECONDS,
    TRUSTED_SECONDS,
    Rule,
    SharedBreakers,
    rule_of_queue,
    waits_for,
)
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.db.transactions import in_reading, in_transition
from django_jobs.models import Breaker, Job, JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from django_jobs.backends.base import Lease
    from django_jobs.backends.database.keys import Notify
    from django_jobs.backends.shared_breakers import Closed
    from django_jobs.db.clock import StoreClock

PUT_OFF_AT_ONCE = 1000


class Breakers(SharedBreakers):
    """The breakers of one backend in its database."""

    def __init__(
        self,
        alias: str,
        clock: StoreClock,
        backend: str,
        closed: Closed,
        notify: Notify = no_hints,
    ) -> None:
        super().__init__(backend)
        self._notify = notify
        self._alias = alias
        self._clock = clock
        self._closed = closed

    def let_one_pass(self, queue: str, take: Callable[[int], list[Lease]]) -> list[Lease]:
        """Let an open breaker's probe through if it is due, and nothing else."""
        rule = rule_of_queue(queue)
        if rule is None:
            return take(1)
        left = in_reading(self._alias, lambda: self._cools_for(rule))
        if left:
            self._closed.shut(queue, left, "circuit-open")
            return []

        def work(connection: BaseDatabaseWrapper) -> tuple[list[Lease], Circuit, Circuit]:
            row, now = self._locked(rule), self._clock.read(connection)
            before = after = _circuit(row)
            began = self._probe_began(row, now)
            if began is not None and now - began > to_microseconds(TRUSTED_SECONDS):
                after = before.on_trust(rule.threshold)
            elif began is not None or before.cools_for(now, rule.cooldown):
                self._closed.shut(queue, PROBED_SECONDS, "circuit-open")
                return [], before, before
            leases = take(1)
            if leases and after.is_open:
                after = before.probed_by(leases[0].token)
                leases = [lease._replace(probe=True) for lease in leases]
            self._save(row, after, leases)
            return leases, before, after

        leases, before, after = in_transition(self._alias, work)
        self._turned(rule, before, after)
        return leases

    def _cools_for(self, rule: Rule) -> float:
        row = self._rows(rule).annotate(now=self._clock.now()).first()
        return _circuit(row).cools_for(row.now, rule.cooldown) / SECOND if row else 0.0

    def _probe(self, rule: Rule, leases: list[Lease]) -> list[Lease]:
        def work(connection: BaseDatabaseWrapper) -> list[Lease]:
            row, now = self._locked(rule), self._clock.read(connection)
            circuit = _circuit(row)
            if not circuit.is_open:
                return leases
            pause = circuit.cools_for(now, rule.cooldown)
            passes, waiting = leases[:1], leases[1:]
            if pause or self._probe_began(row, now) is not None:
                passes, waiting = [], leases
            else:
                self._save(row, circuit.probed_by(passes[0].token), passes)
            due = now + waits_for(rule, pause)
            self._put_off(waiting, due)
            if waiting:
                off.update(keys_of(waiting))
                passed_on.update(self._put_off_next(rule.name, waiting[0].queue, now, due))
            return [lease._replace(probe=True) for lease in passes]

        off: set[str] = set()
        passed_on: set[str] = set()
        passes = in_transition(self._alias, work, sees_commits=True)
        # A job parked just now, because these ran, can only be seen with their keys locked.
        wake(self._alias, self._clock, off, self._notify)
        self._wake_others(rule.name, passed_on)
        return passes

    def _put_off(self, leases: Sequence[Lease], due: int) -> None:
        """Undo their leases, and make them due later."""
        rows = Job.objects.using(self._alias).filter(
            pk__in=sorted(lease.id for lease in leases),
            lease_token__in={lease.token for lease in leases},
        )
        rows.update(
            state=JobState.SCHEDULED,
            due=due,
            lease_token=None,
            lease_expires=None,
            worker=None,
            deliveries=F("deliveries") - 1,
        )

    def _put_off_next(self, handler: str, queue: str, now: int, due: int) -> set[str]:
        """Put off the handler's jobs that the next claims would take; return their keys.

        Looks at the first PUT_OFF_AT_ONCE jobs that are ready and as many that are due, of any
        handler: jobs of other handlers that stand before the rest are claimed first. Claiming
        each of them only to put it off would cost a hundred times as much.
        """
        jobs = Job.objects.using(self._alias)
        here = jobs.filter(queue=queue)
        ready = here.filter(state=JobState.READY).order_by("rank", "due", "id")
        over = here.filter(state=JobState.SCHEDULED, due__lte=now).order_by("due", "id")
        next_ones = [
            pk
            for rows in (ready, over)
            for pk, *owner in rows.values_list("pk", "handler", "backend")[:PUT_OFF_AT_ONCE]
            if owner == [handler, self._backend]
        ]
        # By primary key alone, see settle.py; jobs claimed meanwhile are left out.
        skips = connections[self._alias].features.has_select_for_update_skip_locked
        rows = jobs.filter(pk__in=next_ones).order_by("pk").select_for_update(skip_locked=skips)
        candidates = rows.values_list("pk", "state", "due", *COLUMNS)
        waiting = [
            (pk, keys)
            for pk, state, was_due, *keys in candidates
            if state == JobState.READY or (state == JobState.SCHEDULED and was_due <= now)
        ]
        jobs.filter(pk__in=[pk for pk, _ in waiting]).update(state=JobState.SCHEDULED, due=due)
        return {key for _, keys in waiting for key in keys if key}

    def _wake_others(self, handler: str, keys: Collection[str]) -> None:
        """Wake jobs that wait for a key behind a job that was put off.

        Jobs of the same handler go on waiting: they would only be put off in their turn.
        """
        others = Job.objects.using(self._alias).filter(state=JobState.BLOCKED)
        others = others.exclude(handler=handler).filter(blocked_by__in=keys)
        blocking = others.values_list("blocked_by", flat=True).distinct()[:PUT_OFF_AT_ONCE]
        if keys:
            waited_for = in_reading(self._alias, lambda: {key for key in blocking if key})
            wake(self._alias, self._clock, waited_for, self._notify)

    def _change(
        self, rule: Rule, decide: Callable[[Circuit, int], Circuit], *, make: bool
    ) -> tuple[Circuit, Circuit]:
        def work(connection: BaseDatabaseWrapper) -> tuple[Circuit, Circuit]:
            if not make and not self._rows(rule).exists():
                return CLOSED, CLOSED
            row, now = self._locked(rule), self._clock.read(connection)
            before = _circuit(row)
            after = decide(before, now)
            if after != before:
                self._save(row, after)
            return before, after

        return in_transition(self._alias, work)

    def _read(self) -> dict[tuple[str, str], Circuit]:
        def work() -> dict[tuple[str, str], Circuit]:
            rows = Breaker.objects.using(self._alias)
            counted = rows.filter(backend=self._backend, failures__gt=0)
            return {(row.kind, row.name): _circuit(row) for row in counted}

        return in_reading(self._alias, work)

    def _rows(self, rule: Rule) -> QuerySet[Breaker]:
        rows = Breaker.objects.using(self._alias)
        return rows.filter(backend=self._backend, kind=rule.kind, name=rule.name)

    def _locked(self, rule: Rule) -> Breaker:
        mine = self._rows(rule).select_for_update()
        row = mine.first()
        if row is None:
            new = Breaker(backend=self._backend, kind=rule.kind, name=rule.name)
            Breaker.objects.using(self._alias).bulk_create([new], ignore_conflicts=True)
            row = mine.get()
        return row

    def _save(self, row: Breaker, circuit: Circuit, probed: Sequence[Lease] = ()) -> None:
        row.failures, row.opened_at = circuit.failures, circuit.opened_at
        row.probe = circuit.probe
        row.probe_job = UUID(probed[0].id) if probed and circuit.probe else None
        row.save(using=self._alias)

    def _probe_began(self, row: Breaker, now: int) -> int | None:
        """When the probe was leased, if it still is."""
        if row.probe_job is None:
            return None
        probe = Job.objects.using(self._alias).filter(
            pk=row.probe_job, lease_token=row.probe, lease_expires__gt=now
        )
        return probe.values_list("leased_at", flat=True).first()


def _circuit(row: Breaker) -> Circuit:
    return Circuit(row.failures, row.opened_at, row.probe)
