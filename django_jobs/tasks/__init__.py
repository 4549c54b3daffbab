"""Django's own Tasks on the backends of django_jobs: each task is a job.

``TASKS = {"default": {"BACKEND": "django_jobs.tasks.JobsBackend"}}``
"""

from __future__ import annotations

from django_jobs.tasks.backend import JobsBackend
from django_jobs.tasks.task import JobsTask, task

__all__ = ["JobsBackend", "JobsTask", "task"]
