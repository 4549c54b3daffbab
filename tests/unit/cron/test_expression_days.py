"""On which days an expression runs, beside an oracle that looks at every day."""

from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import product

import pytest
from hypothesis import given, note
from hypothesis import settings as effort
from hypothesis import strategies as st

from django_jobs.cron.expression import parsed
from django_jobs.exceptions import InvalidSchedule
from tests.unit.cron import expressions_at_random, oracle
from tests.unit.cron.comparing import compared, shown_around

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # wall time, counted as if it were UTC

DATES = (
    *("*", "?", "13", "1,15", "29", "31", "L", "l,10", "25-L", "28-5", "28-5/3", "1-31", "1-30"),
    *("*/1", "*/2", "*/10", "1-31/7", "10/5", "1W", "15W", "W15", "28w", "29W", "30W", "31W"),
)
WEEKDAYS = (
    *("*", "?", "mon", "0", "7", "sun,WED", "1-5", "0-6", "0-7", "fri-mon", "5-7", "7-2", "6-1/2"),
    *("*/1", "*/2", "7/1", "7/2", "SUN/2", "0/2", "SAT/2", "1/3", "sat-tue/2", "1-7/3"),
    *("fri#2", "5#5", "7#1", "mon#1,fri#3", "mon-wed#2", "fri-mon#1", "L5", "L0,l7", "fri#1,L5"),
)
MONTHS = ("*", "2", "dec-mar/2")


@cache
def days_of(dates, months, weekdays, first, last):
    """The days from one year to another on which it runs, as the oracle has it."""
    fields = oracle.Fields(f"0 0 {dates} {months} {weekdays}")
    start, end = date(first, 1, 1), date(last, 12, 31)
    days = [start + timedelta(number) for number in range((end - start).days + 1)]
    return {day for day in days if fields.on(day)}


def ours(text, first, last):
    """The same as we have it; none at all where the expression is refused."""
    wall, end = seconds(date(first, 1, 1)) - 1, seconds(date(last + 1, 1, 1))
    found = []
    expression = parsed(text)
    while (wall := expression.next_wall(wall)) is not None and wall < end:
        found.append((EPOCH + timedelta(seconds=wall)).date())
    assert len(set(found)) == len(found)
    return set(found)


def seconds(day):
    return (day - EPOCH.date()).days * 86_400


def why_refused(text):
    """Why an expression is refused, or "" where it is not."""
    try:
        parsed(text)
    except InvalidSchedule as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("dates", DATES)
def test_either_the_date_or_the_weekday_will_do_where_both_are_said(dates):
    for months, weekdays in product(MONTHS, WEEKDAYS):
        text = f"0 0 {dates} {months} {weekdays}"
        wanted = days_of(dates, months, weekdays, 2027, 2028)
        if why := why_refused(text):
            assert "never comes" in why
            assert not days_of(dates, months, weekdays, 2000, 2040), text
        else:
            assert ours(text, 2027, 2028) == wanted, text


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 29w 2 *", "0 0 * 2 mon#5", "0 0 L 2 L1",
                                  "0 0 31W * sat-tue/2", "0 0 */7 */5 5#5"])  # fmt: skip
def test_leap_days_and_a_century_without_one_are_as_the_oracle_has_them(text):
    fields = text.split()[2:]
    assert ours(text, 1972, 2110) == days_of(*fields, 1972, 2110)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        # Written by hand, so that the oracle is not wrong in the same way.
        ("0 0 13 2 fri#2", "02-12 02-13"),
        ("0 0 L 2 L5", "02-26 02-28"),
        ("0 0 15W 8 mon", "08-02 08-09 08-16 08-23 08-30"),
        ("0 0 15W 8 tue#1", "08-03 08-16"),
        ("0 0 31W 1,2,4 *", "01-29"),
        ("0 0 1W 5 *", "05-03"),
        ("0 0 30W 5 *", "05-31"),
        ("0 0 31 2 fri#1", "02-05"),
        ("0 0 */10 2 sun#1", "02-01 02-07 02-11 02-21"),
        ("0 0 1-3 2 7/2", "02-01 02-02 02-03 02-07 02-14 02-21 02-28"),
    ],
)
def test_the_days_of_2027_are_those_of_a_calendar_on_paper(text, days):
    assert " ".join(f"{day:%m-%d}" for day in sorted(ours(text, 2027, 2027))) == days


MOMENT = st.integers(seconds(date(1999, 12, 1)), seconds(date(2105, 1, 1))).map(
    lambda wall: EPOCH + timedelta(seconds=wall)
)


def next_by_looking(fields, moment, count):
    """The next walls after a moment, found day by day, and minute by minute where a day fits."""
    found = []
    day = moment.date()
    while len(found) < count and (day - moment.date()).days < 42 * 366:
        if fields.on(day):
            midnight = EPOCH + timedelta(seconds=seconds(day))
            for minute in range(24 * 60):
                for second in sorted(fields.seconds):
                    wall = midnight + timedelta(minutes=minute, seconds=second)
                    if wall > moment and fields.at(wall):
                        found.append(wall)
                if len(found) >= count:
                    break
        day += timedelta(days=1)
    return found[:count]


@effort(deadline=None, max_examples=300)
@given(text=expressions_at_random.ANY, moment=MOMENT)
def test_the_next_walls_are_those_that_looking_at_every_day_finds(text, moment):
    fields = oracle.Fields(text)
    wanted = next_by_looking(fields, moment, 4)
    note(f"wanted {wanted}")
    if why := why_refused(text):
        assert "never comes" in why
        assert wanted == []
        return
    wall, found = int((moment - EPOCH).total_seconds()), []
    for _ in wanted:
        wall = parsed(text).next_wall(wall)
        found.append(EPOCH + timedelta(seconds=wall))
    assert found == wanted


ZONES = ("Europe/Paris", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "UTC")
BOTH_SAID = (
    *("30 2 L * sun#2", "30 2 28W * L0", "0 0 13 * sun", "*/20 2 14 3 sun#5", "15 1-3 31W * 7/2"),
    *("30 2 * * sun#1", "0 0 1W * sat", "0 3 */7 * mon#1,L0", "* 2 L * fri-mon/2"),
)


@cache
def around(zone):
    """Moments about which to look: where clocks are changed, or the ends of months."""
    changes = oracle.changes(oracle.zone_named(zone), 2027, 2028)
    return changes or [seconds(date(2027, month, 28)) for month in (2, 8)]


@pytest.mark.parametrize("zone", ZONES)
def test_days_that_are_said_both_ways_hold_where_clocks_are_changed(zone):
    for change in around(zone):
        shown = shown_around(zone, change)
        assert any(compared(text, zone, shown) for text in BOTH_SAID)


@effort(deadline=None, max_examples=60)
@given(text=expressions_at_random.BY_MINUTE, zone=st.sampled_from(ZONES), number=st.integers(0, 10))
def test_any_expression_holds_where_clocks_are_changed(text, zone, number):
    changes = around(zone)
    shown = shown_around(zone, changes[number % len(changes)])
    if why := why_refused(text):
        assert "never comes" in why
        return
    compared(text, zone, shown)
