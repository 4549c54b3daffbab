"""The tables. Every change of state is made by the backends, not by the models.

Versions N and N−1 of the package must be able to share one database: a column added
later is nullable or has a database default, and raw INSERTs name their columns.

Instants that decide something (``due``, ``lease_expires``, ``expires``) are microseconds
on the store's clock; ``DateTimeField`` is for people.
"""

from __future__ import annotations

from django_jobs.models.jobs import Identity, Job, JobKey, JobState
from django_jobs.models.outbox import OutboxJob, RelayLease
from django_jobs.models.queues import (
    Breaker,
    Metric,
    OperatorEvent,
    Overview,
    QueueControl,
    QueueMeter,
    QueueMinute,
    Worker,
)
from django_jobs.models.results import (
    EndedIds,
    FailedJob,
    FailureGroup,
    JobAttempt,
    JobResult,
    ResolutionRun,
)
from django_jobs.models.schedules import (
    AdminSchedule,
    ScheduleState,
    ScheduleTick,
    TickDecision,
    TickOutcome,
    schedule_key,
)

__all__ = [
    "AdminSchedule",
    "Breaker",
    "EndedIds",
    "FailedJob",
    "FailureGroup",
    "Identity",
    "Job",
    "JobAttempt",
    "JobKey",
    "JobResult",
    "JobState",
    "Metric",
    "OperatorEvent",
    "OutboxJob",
    "Overview",
    "QueueControl",
    "QueueMeter",
    "QueueMinute",
    "RelayLease",
    "ResolutionRun",
    "ScheduleState",
    "ScheduleTick",
    "TickDecision",
    "TickOutcome",
    "Worker",
    "schedule_key",
]
