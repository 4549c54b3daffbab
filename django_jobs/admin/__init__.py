"""What operators see and do in Django's admin. Everything that changes calls ``operations``."""

from __future__ import annotations

from django_jobs.admin.dead_letters import FailedJobAdmin
from django_jobs.admin.tables import (
    JobAdmin,
    JobAttemptAdmin,
    JobResultAdmin,
    OperatorEventAdmin,
    QueueControlAdmin,
)

__all__ = [
    "FailedJobAdmin",
    "JobAdmin",
    "JobAttemptAdmin",
    "JobResultAdmin",
    "OperatorEventAdmin",
    "QueueControlAdmin",
]
