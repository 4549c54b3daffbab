"""What would become of dead letters, found out without changing anything."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django_jobs.exceptions import ConfigurationError, InvalidJob, Rejection
from django_jobs.operations.resealing import checked

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_jobs.models import FailedJob

LOOKED_AT_MOST = 1_000
_NOT_NEEDED = ("traceback", "output", "meta", "error_message")


@dataclass(slots=True)
class Foreseen:
    """``looked`` dead letters were looked at; why some of them would be refused."""

    looked: int = 0
    would: int = 0
    resolved: int = 0
    why: Counter[str] = field(default_factory=Counter)

    @property
    def refused(self) -> int:
        return self.why.total()


def foresee(letters: QuerySet[FailedJob], verb: str, limit: int = LOOKED_AT_MOST) -> Foreseen:
    """What a replay or a discard of the first of some dead letters would come to."""
    seen = Foreseen()
    for failed in letters.order_by("pk").defer(*_NOT_NEEDED)[:limit]:
        seen.looked += 1
        if failed.resolution:
            seen.resolved += 1
        elif verb == "replay" and (why := obstacle_of(failed)):
            seen.why[why] += 1
        else:
            seen.would += 1
    return seen


def obstacle_of(failed: FailedJob) -> str:
    """Why a dead letter cannot be replayed as things are, or nothing."""
    try:
        checked(failed)
    except (Rejection, InvalidJob, ConfigurationError) as problem:
        return str(problem)
    return ""
