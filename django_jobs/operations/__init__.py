"""What an operator can do. The admin and the commands call these functions, and only these.

Each of them can be called twice, by two people at once, and the thing is done once.
"""

from __future__ import annotations

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
from django_jobs.operations.live import QueueOverview, cancel, live, overview
from django_jobs.operations.purging import Purged, purge, sweep_results
from django_jobs.operations.queues import (
    QueueSettings,
    limit_queue,
    pause_queue,
    queue_settings,
    reset_rate,
    resume_queue,
)

__all__ = [
    "Discarded",
    "Purged",
    "QueueOverview",
    "QueueSettings",
    "Replayed",
    "cancel",
    "discard",
    "discard_each",
    "jobs_database",
    "limit_queue",
    "live",
    "overview",
    "pause_queue",
    "purge",
    "queue_settings",
    "replay",
    "replay_each",
    "reset_rate",
    "resume_queue",
    "select",
    "sweep_results",
]
