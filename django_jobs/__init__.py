"""Durable background jobs for Django."""

from __future__ import annotations

from django_jobs.cron.decorator import cron
from django_jobs.decorators import JobFunction, JobHandler, job
from django_jobs.enqueue import (
    DefinedJob,
    Handle,
    PreparedJob,
    aenqueue_many,
    define,
    enqueue_many,
)
from django_jobs.handlers.base import Cancel, JobContext, Retry, Snooze
from django_jobs.handlers.classes import TypedContext

__all__ = [
    "Cancel",
    "DefinedJob",
    "Handle",
    "JobContext",
    "JobFunction",
    "JobHandler",
    "PreparedJob",
    "Retry",
    "Snooze",
    "TypedContext",
    "aenqueue_many",
    "cron",
    "define",
    "enqueue_many",
    "job",
]
__version__ = "0.1.0.dev0"
