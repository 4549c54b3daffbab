"""Which ticks of a schedule are to run and which are past help. Pure: asks and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_jobs.clock import SECOND, from_datetime, to_datetime
from django_jobs.cron.occurrences import between, latest
from django_jobs.cron.schedule import Missed

if TYPE_CHECKING:
    from datetime import datetime

    from django_jobs.cron.schedule import Schedule

ON_TIME_SECONDS = 60
"""A tick that is looked at within it is on time: a system's crontab comes once a minute."""
MISSES_TOLD = 100
_FIELDS_WITH_SECONDS = 6


class Planned(NamedTuple):
    """One tick: whether it is to run, whether that makes up for a missed one, and why not."""

    tick: int
    runs: bool
    late: bool = False
    reason: str = ""


def beginning(schedule: Schedule, now: int) -> int:
    """Until when a schedule that is new at ``now`` counts as decided.

    The minute that has begun still counts, or the second where the expression has seconds.
    """
    whole = SECOND if len(schedule.expression.split()) == _FIELDS_WITH_SECONDS else 60 * SECOND
    return now - now % whole - 1


def plan(schedule: Schedule, after: int, now: int) -> list[Planned]:
    """The ticks after ``after`` and until ``now``, the oldest first, the missed ones judged.

    Of misses beyond ``MISSES_TOLD``, or beyond what is made up for, the oldest one listed
    stands for all before it.
    """
    made_up_for = schedule.missed_limit if schedule.missed is Missed.ALL else 0
    most = max(made_up_for, MISSES_TOLD) + 1
    # What is on time does not count among them: with seconds there may be many.
    last_missed = now - ON_TIME_SECONDS * SECOND - 1
    late = [from_datetime(one) for one in latest(schedule, *_utc(after, last_missed), most)]
    timely = [from_datetime(one) for one in between(schedule, *_utc(max(after, last_missed), now))]
    planned = _judged(schedule, late, now, superseded=bool(timely))
    if len(late) == most:
        told = "; it stands for all that were missed before it, too"
        planned[0] = planned[0]._replace(reason=planned[0].reason + told)
    return planned + [Planned(tick, runs=True) for tick in timely]


def _utc(after: int, until: int) -> tuple[datetime, datetime]:
    return to_datetime(after), to_datetime(until)


def _judged(schedule: Schedule, late: list[int], now: int, *, superseded: bool) -> list[Planned]:
    """What the schedule's policy says of ticks that nobody looked at in time."""
    if schedule.missed is Missed.ALL:
        chosen = set(late[-schedule.missed_limit :] if schedule.missed_limit else ())
        why = f"more than {schedule.missed_limit} were missed"
    elif schedule.missed is Missed.LATEST:
        chosen = set() if superseded else set(late[-1:])
        why = "a later one runs"
    else:
        chosen, why = set(), "no scheduler ran then"
    planned = []
    for tick in late:
        passed = (now - tick) / SECOND
        if tick not in chosen:
            planned.append(Planned(tick, runs=False, late=True, reason=f"missed: {why}"))
        elif schedule.deadline is not None and passed > schedule.deadline:
            told = f"missed: {passed:.0f} s late, its deadline is {schedule.deadline:g} s"
            planned.append(Planned(tick, runs=False, late=True, reason=told))
        else:
            planned.append(Planned(tick, runs=True, late=True))
    return planned
