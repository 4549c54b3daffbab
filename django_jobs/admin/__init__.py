"""The pages of Django's admin for operators. Every change goes through ``operations``."""

from __future__ import annotations

from django_jobs.admin.bulk import ResolutionRunAdmin
from django_jobs.admin.dead_letters import FailedJobAdmin
from django_jobs.admin.jobs import JobAdmin
from django_jobs.admin.overview import OverviewAdmin
from django_jobs.admin.queues import QueueControlAdmin
from django_jobs.admin.records import JobAttemptAdmin, JobResultAdmin, OperatorEventAdmin
from django_jobs.admin.schedule_forms import AdminScheduleAdmin
from django_jobs.admin.schedules import ScheduleAdmin
from django_jobs.admin.workers import WorkerAdmin

__all__ = [
    "AdminScheduleAdmin",
    "FailedJobAdmin",
    "JobAdmin",
    "JobAttemptAdmin",
    "JobResultAdmin",
    "OperatorEventAdmin",
    "OverviewAdmin",
    "QueueControlAdmin",
    "ResolutionRunAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
]
