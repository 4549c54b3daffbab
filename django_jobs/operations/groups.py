"""Dead letters by the error they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db.models import Max, Min, Sum

from django_jobs.backends.database.dead_letters import recount
from django_jobs.db.home import jobs_database
from django_jobs.models import FailureGroup

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Group", "groups", "recount_groups"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """``open`` of the ``seen`` dead letters that are on record wait for somebody."""

    fingerprint: str
    handler: str
    reason: str
    error_type: str
    error_message: str
    open: int
    seen: int
    first_seen: datetime
    last_seen: datetime


def groups(*, limit: int = 100, resolved: bool = False, using: str | None = None) -> list[Group]:
    """The groups with open dead letters, most of them first; with ``resolved``, the others too.

    Reads counts that are kept, never the dead letters themselves.
    """
    rows = (
        FailureGroup.objects.using(using or jobs_database())
        .order_by()
        .values("fingerprint")
        .annotate(
            all_open=Sum("open"),
            all_seen=Sum("seen"),
            first=Min("first_seen"),
            last=Max("last_seen"),
            any_handler=Max("handler"),
            any_reason=Max("reason"),
            any_type=Max("error_type"),
            any_message=Max("error_message"),
        )
        .filter(**({"all_seen__gt": 0} if resolved else {"all_open__gt": 0}))
        .order_by("-all_open", "-last")
    )
    return [
        Group(
            fingerprint=row["fingerprint"],
            handler=row["any_handler"],
            reason=row["any_reason"],
            error_type=row["any_type"],
            error_message=row["any_message"],
            open=row["all_open"],
            seen=row["all_seen"],
            first_seen=row["first"],
            last_seen=row["last"],
        )
        for row in rows[:limit]
    ]


def recount_groups(*, using: str | None = None) -> int:
    """Count all groups anew, which reads every dead letter; how many groups there are.

    For rows that came by another way than a worker, such as a restored table.
    """
    return recount(using or jobs_database())
