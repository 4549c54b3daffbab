"""Old ticks are forgotten, save the latest of each schedule; so is how far gone ones had come."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.db.models import Q

from django_jobs.backends.database.rows import for_people
from django_jobs.backends.database.transactions import in_reading, in_transition
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.models import ScheduleState, ScheduleTick, TickDecision, TickOutcome

if TYPE_CHECKING:
    from collections.abc import Container

KEPT = 100
"""So many ticks of each schedule are kept, however old."""
KEPT_FOR = timedelta(days=30)
STEP = 1000
GONE_AFTER = 86_400 * SECOND
"""For so long newer code may be about to decide what this code does not know."""
PAGES = 20


def purge_ticks(
    alias: str, now: int, *, older_than: timedelta = KEPT_FOR, kept: int = KEPT, step: int = STEP
) -> int:
    """Delete at most ``step`` ticks that are old and not among the latest of their schedule.

    What waits, and what has a live job, stays.
    """
    before = for_people(now - to_microseconds(older_than))
    rows = ScheduleTick.objects.using(alias)
    old = rows.filter(decided_at__lt=before)
    old = old.exclude(decision=TickDecision.WAITING).exclude(outcome=TickOutcome.OPEN)
    page = old
    for _ in range(PAGES):
        found = list(
            page.order_by("decided_at", "id").values_list("id", "key", "tick", "decided_at")[:step]
        )
        if not found:
            return 0
        if doomed := _doomed(alias, [(pk, key, tick) for pk, key, tick, _ in found], kept):
            in_transition(alias, lambda _, doomed=doomed: rows.filter(pk__in=doomed).delete())  # type: ignore[misc] # an argument's default
            return len(doomed)
        last, _, _, at = found[-1]
        page = old.filter(Q(decided_at__gt=at) | Q(decided_at=at, id__gt=last))
    return 0


def forget_the_gone(alias: str, known: Container[str], now: int) -> int:
    """Let schedules that nobody decided for a day, and that are not known here, begin anew.

    One that is declared again would make up for all the time that it was not there. Its row
    stays, as it may be paused; without a version it is as if its moments had changed.
    """
    rows = ScheduleState.objects.using(alias)
    late = rows.filter(next_due__lt=now - GONE_AFTER)
    keys = in_reading(alias, lambda: list(late.values_list("key", flat=True)))
    gone = [key for key in keys if key not in known][:STEP]
    if not gone:
        return 0
    # Whoever decided one of them meanwhile knows it.
    found = late.filter(key__in=gone)
    return in_transition(alias, lambda _: found.update(version="", next_due=None))


def _doomed(alias: str, found: list[tuple[int, str, int]], kept: int) -> list[int]:
    """Those among old ticks that are not of the latest of their schedule."""
    oldest_kept: dict[str, int] = {}
    for key in {key for _, key, _ in found}:
        of_it = ScheduleTick.objects.using(alias).filter(key=key).order_by("-tick")
        oldest_kept[key] = next(iter(of_it.values_list("tick", flat=True)[kept - 1 : kept]), 0)
    return [pk for pk, key, tick in found if tick < oldest_kept[key]]
