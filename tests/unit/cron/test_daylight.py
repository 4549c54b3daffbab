"""Expressions on days on which clocks are changed: a sample; all zones are in the long test."""

import ast
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from django_jobs.cron.occurrences import between, latest, next_after
from django_jobs.cron.options import Daylight
from tests.unit.cron import oracle
from tests.unit.cron.comparing import (
    BY_SECOND,
    EVERY_MINUTE,
    EXPRESSIONS,
    compared,
    schedule,
    shown_around,
)

ODD = (
    "Africa/Casablanca",
    "America/Santiago",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
    "Europe/Paris",
    "Pacific/Chatham",
)


@cache
def around(year, zone):
    return oracle.changes(oracle.zone_named(zone), year, year)


def test_the_oracle_knows_nothing_of_ours():
    tree = ast.parse(Path(oracle.__file__).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert imported == {"datetime", "zoneinfo"}


def test_there_are_enough_expressions():
    assert len(set(EXPRESSIONS)) >= 30


@pytest.mark.parametrize("zone", ODD)
def test_every_change_of_a_year_as_the_oracle_has_it(zone):
    ticks = 0
    for change in around(2027, zone):
        shown = shown_around(zone, change)
        ticks += sum(compared(expression, zone, shown) for expression in EXPRESSIONS[::2])
    assert ticks > 100


@pytest.mark.parametrize("zone", ODD)
def test_every_minute_and_single_seconds_as_the_oracle_has_it(zone):
    for change in around(2027, zone):
        compared(EVERY_MINUTE, zone, shown_around(zone, change, before=3600, after=3 * 3600))
        shown = shown_around(zone, change, step=1, before=3600, after=2 * 3600)
        for expression in BY_SECOND:
            compared(expression, zone, shown, 1)


@pytest.mark.parametrize("daylight", [Daylight.FIXED, Daylight.INTERVAL])
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/30 * * * *", "0,30 0-3 * * *"])
def test_how_an_expression_is_read_can_be_chosen(daylight, expression):
    for zone in ODD:
        for change in around(2027, zone):
            compared(expression, zone, shown_around(zone, change), daylight=daylight)


@pytest.mark.parametrize("zone", ODD)
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/20 * * * *", "0,45 1-3 * * *"])
def test_the_next_moment_from_any_other(zone, expression):
    for change in around(2027, zone):
        shown = shown_around(zone, change)
        due = oracle.due(expression, shown, 60)
        for moment, _wall in shown[:: 37 if due else 1]:
            if moment >= due[-1]:
                break
            wanted = next(one for one in due if one > moment)
            found = next_after(schedule(expression, zone), datetime.fromtimestamp(moment, UTC))
            assert found == datetime.fromtimestamp(wanted, UTC)


def test_a_daily_time_in_the_hour_that_repeats_comes_once():
    day = datetime(2026, 10, 25, tzinfo=UTC)
    found = between(schedule("30 2 * * *", "Europe/Paris"), day, day + timedelta(hours=12))
    assert found == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]


DAYS_LEFT_OUT_OR_TWICE = (
    *(("Pacific/Apia", 2011), ("Pacific/Fakaofo", 2011), ("Pacific/Kwajalein", 1993)),
    ("Pacific/Kwajalein", 1969),
)


@pytest.mark.parametrize(("zone", "year"), DAYS_LEFT_OUT_OR_TWICE)
def test_a_day_that_never_was_or_came_twice_is_as_the_oracle_has_it(zone, year):
    ticks = 0
    for change in around(year, zone):
        shown = shown_around(zone, change, before=30 * 3600, after=50 * 3600)
        ticks += sum(compared(expression, zone, shown) for expression in EXPRESSIONS[::2])
    assert ticks


def test_what_is_due_on_a_day_that_never_was_comes_once_at_its_end():
    since, until = datetime(2011, 12, 29, tzinfo=UTC), datetime(2012, 1, 1, tzinfo=UTC)
    found = between(schedule("0 12 * * *", "Pacific/Apia"), since, until)
    noons = [(29, 22), (30, 10), (30, 22), (31, 22)]  # of the 29th, of none, of the 31st and 1st
    assert found == [datetime(2011, 12, day, hour, tzinfo=UTC) for day, hour in noons]


def test_a_daily_time_that_is_left_out_comes_at_the_end_of_the_gap():
    day = datetime(2026, 3, 29, tzinfo=UTC)
    found = between(schedule("30 2 * * *", "Europe/Paris"), day, day + timedelta(hours=12))
    assert found == [datetime(2026, 3, 29, 1, 0, tzinfo=UTC)]


def test_an_interval_keeps_its_pace_through_both():
    for day in (datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC)):
        found = between(schedule("*/30 * * * *", "Europe/Paris"), day, day + timedelta(hours=12))
        assert len(found) == 24
        assert {b - a for a, b in pairwise(found)} == {timedelta(minutes=30)}


def test_a_fraction_of_a_second_is_no_second():
    found = next_after(schedule("* * * * *", "UTC"), datetime(2026, 1, 1, 0, 0, 59, 999_999, UTC))
    assert found == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def test_the_moment_itself_is_not_after_itself():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert next_after(schedule("0 0 * * *", "UTC"), moment) == moment + timedelta(days=1)
    assert between(schedule("0 0 * * *", "UTC"), moment - timedelta(days=1), moment) == [moment]


def test_at_most_so_many():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    found = between(schedule("* * * * *", "UTC"), moment, moment + timedelta(days=1), 3)
    assert found == [moment + timedelta(minutes=n) for n in (1, 2, 3)]


@pytest.mark.parametrize("expression", ["* * * * *", "0 0 * * *", "0 0 29 2 *", "*/7 2 * * *"])
@pytest.mark.parametrize("limit", [1, 3])
def test_the_latest_are_the_end_of_all(expression, limit):
    since, until = datetime(2026, 10, 23, tzinfo=UTC), datetime(2026, 10, 26, 0, 30, tzinfo=UTC)
    every = between(schedule(expression, "Europe/Paris"), since, until)
    assert latest(schedule(expression, "Europe/Paris"), since, until, limit) == every[-limit:]


def test_the_latest_of_years_is_found_as_fast_as_that_of_an_hour():
    since, until = datetime(2020, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    assert latest(schedule("* * * * * *", "UTC"), since, until) == [until]


def test_a_day_that_never_comes_again_has_no_next():
    leap = schedule("0 0 29 2 *", "UTC")
    assert next_after(leap, datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2028, 2, 29, tzinfo=UTC)
