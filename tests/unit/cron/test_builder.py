from datetime import time

import pytest

from django_jobs.cron import builder as e
from django_jobs.cron.describe import in_words
from django_jobs.cron.expression import parsed
from django_jobs.exceptions import InvalidSchedule


@pytest.mark.parametrize(
    ("written", "expression"),
    [
        (e.every_minutes(), "* * * * *"),
        (e.every_minutes(5), "*/5 * * * *"),
        (e.every_hours(), "0 * * * *"),
        (e.every_hours(2, 15), "15 */2 * * *"),
        (e.hourly_at(5), "5 * * * *"),
        (e.hourly_at(30, 15), "15,30 * * * *"),
        (e.daily_at("02:00"), "0 2 * * *"),
        (e.daily_at("2:30"), "30 2 * * *"),
        (e.daily_at(time(14, 5)), "5 14 * * *"),
        (e.daily_at("02:00", "14:00"), "0 2,14 * * *"),
        (e.weekly_on("mon"), "0 0 * * 1"),
        (e.weekly_on("Sunday", "08:30"), "30 8 * * 0"),
        (e.weekly_on(7), "0 0 * * 0"),
        (e.weekly_on(["tue", 4], "12:00"), "0 12 * * 2,4"),
        (e.weekdays_at("09:00"), "0 9 * * 1-5"),
        (e.weekends_at("10:15"), "15 10 * * 0,6"),
        (e.monthly_on(), "0 0 1 * *"),
        (e.monthly_on("last", "23:00"), "0 23 l * *"),
        (e.quarterly(), "0 0 1 1,4,7,10 *"),
        (e.quarterly(15, "06:00"), "0 6 15 1,4,7,10 *"),
        (e.yearly(), "0 0 1 1 *"),
        (e.yearly(3, 31, "12:00"), "0 12 31 3 *"),
        (e.between_hours(9, 17), "0 9-17 * * *"),
        (e.between_hours(9, 17, 15), "*/15 9-17 * * *"),
        (e.between_hours(22, 2), "0 22-23,0-2 * * *"),
        (e.between_hours(23, 0, 1), "* 23,0 * * *"),
        (e.between_hours(9, 9), "0 9 * * *"),
    ],
)
def test_a_function_writes_a_whole_expression(written, expression):
    assert written == expression
    assert parsed(written)
    assert in_words(written)


@pytest.mark.parametrize(
    ("function", "args", "why"),
    [
        (e.every_minutes, (60,), "from 1 to 59"),
        (e.every_minutes, (True,), "whole number"),
        (e.hourly_at, (60,), "from 0 to 59"),
        (e.daily_at, (), "no time is given"),
        (e.daily_at, ("25:00",), "'25:00' is no time"),
        (e.daily_at, (5,), "5 is no time"),
        (e.daily_at, ("02:00:30",), "six fields"),
        (e.daily_at, ("02:00", "14:30"), "cannot be said by one expression"),
        (e.weekly_on, ("moonday",), "moonday"),
        (e.monthly_on, (32,), "from 1 to 31"),
        (e.yearly, (13,), "from 1 to 12"),
        (e.between_hours, (9, 24), "from 0 to 23"),
    ],
)
def test_what_cannot_be_written_is_refused(function, args, why):
    with pytest.raises(InvalidSchedule, match=why):
        function(*args)
