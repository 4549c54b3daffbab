"""Jobs of our own."""

from __future__ import annotations

from django_jobs.decorators import job
from django_jobs.handlers.base import Snooze
from django_jobs.models import ResolutionRun
from django_jobs.operations import bulk


@job(key=bulk.CARRY_ON)
def carry_on(run_id: int, using: str) -> None:
    """Make a step of a run through dead letters, and come back for the next one."""
    try:
        run, wait = bulk.advance(run_id, using=using)
    except ResolutionRun.DoesNotExist:
        return  # deleted by hand; nothing is left to carry on
    if run.state == ResolutionRun.State.RUNNING:
        raise Snooze(wait)
