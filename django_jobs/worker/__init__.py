"""From a leased message to its end: admit it, run one attempt, settle."""

from __future__ import annotations

from django_jobs.worker.build import process_once
from django_jobs.worker.cycle import Report

__all__ = ["Report", "process_once"]
