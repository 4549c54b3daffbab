"""Our moments beside the oracle's, around the changes of clocks."""

from datetime import UTC, datetime, timedelta

from django_jobs.cron.occurrences import between
from django_jobs.cron.options import Daylight
from django_jobs.cron.schedule import Schedule
from django_jobs.definition import JobDefinition
from tests.unit.cron import oracle

BEFORE, AFTER = 3 * 3600, 26 * 3600

EXPRESSIONS = (
    # Times of the day: around midnight, in the hours that repeat or are left out, and far off.
    *("0 0 * * *", "30 0 * * *", "0 1 * * *", "15 1 * * *", "59 1 * * *", "0 2 * * *"),
    *("5 2 * * *", "30 2 * * *", "59 2 * * *", "0 3 * * *", "45 2,3 * * *", "0,30 2 * * *"),
    *("0 1-3 * * *", "10,20,50 0-4 * * *", "0 12 * * *", "59 23 * * *", "0-20 2 * * *"),
    *("30 2 * * sun", "0 0 * * 0", "30 1 1-7 * 0", "0 2 29 3 *", "15 0 * 3,10 sat,sun"),
    "0 3 31 * mon",
    # Intervals.
    *("*/30 * * * *", "*/20 2 * * *", "7 * * * *", "0 */2 * * *", "15 1-23/2 * * *"),
    *("*/45 0-5 * * *", "3/17 0-4 * * *", "0 */6 * * *", "30 */3 * * sun", "* 2 * * *"),
)
EVERY_MINUTE = "* * * * *"
BY_SECOND = ("30 2 * * * 15", "30 2 * * * */20", "*/30 * * * * 45", "0 2,3 * * * 0,30")


def schedule(expression, zone, daylight=Daylight.AUTO):
    job = JobDefinition("h")
    return Schedule(name="s", expression=expression, timezone=zone, job=job, daylight=daylight)


def shown_around(zone, change, *, step=60, before=BEFORE, after=AFTER):
    start = change - before
    return list(oracle.walls(oracle.zone_named(zone), start, change + after, step))


def compared(expression, zone, shown, step=60, daylight=Daylight.AUTO):
    """How many moments both found; asserts that they are the same ones."""
    interval = {Daylight.FIXED: False, Daylight.INTERVAL: True}.get(daylight)
    wanted = oracle.due(expression, shown, step, interval=interval)
    first, last = (datetime.fromtimestamp(shown[place][0], UTC) for place in (0, -1))
    second = timedelta(seconds=1)
    ours = [
        int(moment.timestamp())
        for moment in between(schedule(expression, zone, daylight), first - second, last)
    ]
    assert ours == wanted, (
        f"{expression} in {zone}: too many {told(set(ours) - set(wanted))}, "
        f"missing {told(set(wanted) - set(ours))}"
    )
    return len(wanted)


def told(moments):
    return [
        f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S}" for moment in sorted(moments)
    ]
