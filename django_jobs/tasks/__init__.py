"""Django's own Tasks on the backends of django_jobs: a task is a job, and nothing beside it.

``TASKS = {"default": {"BACKEND": "django_jobs.tasks.JobsBackend"}}``
"""

from __future__ import annotations

from django_jobs.tasks.backend import JobsBackend
from django_jobs.tasks.task import JobsTask, task

__all__ = ["JobsBackend", "JobsTask", "task"]
