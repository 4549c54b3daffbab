"""Live jobs: what waits and runs, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from django_jobs.backends.database.counts import keys_of_suspects
from django_jobs.backends.database.unreadable import of_known_kinds
from django_jobs.db.home import jobs_database
from django_jobs.models import Job, JobState

if TYPE_CHECKING:
    from django.db.models import QuerySet

LiveState = Literal["scheduled", "ready", "running", "blocked", "suspect"]
SUSPECTS_AT_MOST = 10_000
_STATES = {state.label: state for state in JobState}


def live(
    queue: str | None = None,
    handler: str | None = None,
    state: LiveState | None = None,
    *,
    using: str | None = None,
) -> QuerySet[Job]:
    """Live jobs in the order in which they are due; raises ValueError for an unknown state.

    Suspects are found by an index that knows nothing else of them: at most SUSPECTS_AT_MOST
    that wait, and as many that run.
    """
    jobs = Job.objects.using(using or jobs_database())
    if state == "suspect":
        jobs = jobs.filter(pk__in=keys_of_suspects(jobs.db, SUSPECTS_AT_MOST))
    elif state is not None:
        if state not in _STATES:
            raise ValueError(f"there is no state {state!r}; use {', '.join(_STATES)} or suspect")
        jobs = jobs.filter(state=_STATES[state])
    if queue is not None:
        jobs = jobs.filter(queue=queue)
    if handler is not None:
        jobs = jobs.filter(handler=handler)
    return of_known_kinds(jobs).order_by("queue", "state", "rank", "due", "id")
