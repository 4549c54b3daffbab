"""The admin's log of runs through dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType

from django_jobs.admin.databases import home_of, told_in
from django_jobs.texts import printable

if TYPE_CHECKING:
    from django_jobs.models import ResolutionRun


def log_begun(user_id: Any, run: ResolutionRun) -> None:
    """That somebody began a run, and through what."""
    pace = f", at most {run.rate:g} a second" if run.rate else ""
    through = ", ".join(f"{name} {value}" for name, value in run.matching.items() if name != "keys")
    _log(
        user_id,
        run,
        ADDITION,
        f"Began to {run.verb} {run.total} dead letters ({through or 'all open ones'}){pace}."
        f"{told_in(home_of(run))}{_because(run.reason)}",
    )


def log_stopped(user_id: Any, run: ResolutionRun, reason: str) -> None:
    """That somebody stopped a run."""
    told = (
        f"Stopped after {run.dealt_with} of {run.total}.{told_in(home_of(run))}{_because(reason)}"
    )
    _log(user_id, run, CHANGE, told)


def _because(reason: str) -> str:
    return f" Reason: {reason}" if reason else " No reason given."


def _log(user_id: Any, run: ResolutionRun, flag: int, told: str) -> None:
    LogEntry.objects.create(
        user_id=user_id,
        content_type=ContentType.objects.get_for_model(run, for_concrete_model=False),
        object_id=str(run.pk),
        object_repr=str(run)[:200],
        action_flag=flag,
        change_message=printable(told),
    )
