"""The rows of ticks, written where their jobs are enqueued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import Error, IntegrityError, connections, transaction

from django_jobs.backends.database.rows import for_people
from django_jobs.clock import to_datetime
from django_jobs.cron import enqueueing
from django_jobs.db.transactions import is_conflict, is_connection_lost
from django_jobs.ids import process_name
from django_jobs.models import ScheduleTick, TickOutcome, schedule_key
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from django_jobs.cron.deciding import Verdict
    from django_jobs.cron.schedule import Schedule
    from django_jobs.enqueue import PreparedJob

UNDECIDED = "undecided"
"""Of a tick that has to wait until a dependency is decided; no row says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided, or would be, for one tick."""

    name: str
    tick: datetime
    decision: str
    reason: str = ""
    job_id: str = ""


class Recorder:
    """Writes ticks. ``in_child`` is given the jobs that would run where they are enqueued."""

    def __init__(
        self,
        alias: str,
        in_child: Callable[[str, int, PreparedJob[Any]], None] | None = None,
    ) -> None:
        self.alias = alias
        self._in_child = in_child

    def write(
        self,
        schedule: Schedule,
        tick: int,
        verdict: Verdict,
        now: int,
        press: str | None = None,
        by: str = "",
    ) -> ScheduleTick | None:
        """The row of a tick, and its job; None when somebody was first.

        What became of the job is known when the transaction is over: a broker is told after
        the commit, and when it refuses, the row says so.
        """
        row = ScheduleTick(
            key=schedule_key(schedule.name),
            name=schedule.name,
            tick=tick,
            decision=str(verdict.decision),
            reason=verdict.reason,
            decided_at=for_people(now),
            decided_by=(by or process_name())[:150],
            press=press,
        )
        try:
            with transaction.atomic(using=self.alias):
                row.save(using=self.alias, force_insert=True)
        except IntegrityError:
            return None
        if verdict.has_a_job:
            self.give_job(schedule, row)
        return row

    def give_job(self, schedule: Schedule, row: ScheduleTick) -> None:
        try:
            with transaction.atomic(using=self.alias):
                job = enqueueing.prepared(schedule, row.tick)
                row.job_id = job.id
                row.backend = job.plan.resolve()[0].alias
                row.outcome = TickOutcome.OPEN
                row.save(using=self.alias)
                enqueueing.hand_over(
                    self.alias,
                    row,
                    job,
                    self._in_child,
                )
        except Exception as error:
            if isinstance(error, Error) and (is_connection_lost(error) or is_conflict(error)):
                raise
            enqueueing.failed(self.alias, row, error)


def locked(alias: str, model: Any) -> Any:
    """Rows to be held until the end of the transaction; those that others hold are left out."""
    features = connections[alias].features
    rows = model.objects.using(alias)
    if not features.has_select_for_update:
        return rows  # the transaction holds the whole database
    return rows.select_for_update(skip_locked=features.has_select_for_update_skip_locked)


def of_row(row: ScheduleTick) -> Decided:
    """What a row tells, as it is now."""
    return Decided(
        name=row.name,
        tick=to_datetime(row.tick),
        decision=str(row.decision),
        reason=row.reason,
        job_id=str(row.job_id or ""),
    )


def told(row: ScheduleTick) -> Decided:
    """Tell the world, when it is committed and a broker has had its say."""
    one = of_row(row)
    events.emit(
        events.TickDecided(
            schedule=one.name,
            decision=one.decision,
            reason=one.reason,
            job_id=one.job_id,
            tick=one.tick.isoformat(),
        )
    )
    return one
