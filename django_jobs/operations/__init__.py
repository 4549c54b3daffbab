"""What an operator can do. The admin and the commands call these functions, and only these.

Each of them can be called twice, by two people at once, and the thing is done once.
"""

from __future__ import annotations

from django_jobs.operations.breakers import OpenBreaker, open_breakers
from django_jobs.operations.database import jobs_database
from django_jobs.operations.dead_letters import (
    Discarded,
    Replayed,
    discard,
    discard_each,
    replay,
    replay_each,
    select,
)
from django_jobs.operations.depths import QueueOverview, overview
from django_jobs.operations.editing import Edited
from django_jobs.operations.explaining import Cause, Explanation, explain
from django_jobs.operations.foreseeing import Foreseen, foresee
from django_jobs.operations.groups import Group, groups, recount_groups
from django_jobs.operations.live import live
from django_jobs.operations.matching import Matching
from django_jobs.operations.purging import Purged, purge, sweep_results
from django_jobs.operations.queues import (
    QueueSettings,
    limit_queue,
    pause_queue,
    queue_settings,
    reset_breaker,
    reset_rate,
    resume_queue,
)
from django_jobs.operations.run_steps import advance
from django_jobs.operations.runs import begin, carry, stop
from django_jobs.operations.searching import Found, search
from django_jobs.operations.stopping import CalledOff, call_off, cancel
from django_jobs.operations.workers import Drained, WorkerSeen, drain, workers

__all__ = [
    "CalledOff",
    "Cause",
    "Discarded",
    "Drained",
    "Edited",
    "Explanation",
    "Foreseen",
    "Found",
    "Group",
    "Matching",
    "OpenBreaker",
    "Purged",
    "QueueOverview",
    "QueueSettings",
    "Replayed",
    "WorkerSeen",
    "advance",
    "begin",
    "call_off",
    "cancel",
    "carry",
    "discard",
    "discard_each",
    "drain",
    "explain",
    "foresee",
    "groups",
    "jobs_database",
    "limit_queue",
    "live",
    "open_breakers",
    "overview",
    "pause_queue",
    "purge",
    "queue_settings",
    "recount_groups",
    "replay",
    "replay_each",
    "reset_breaker",
    "reset_rate",
    "resume_queue",
    "search",
    "select",
    "stop",
    "sweep_results",
    "workers",
]
