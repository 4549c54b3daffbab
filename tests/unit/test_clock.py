"""Time as whole microseconds: exact, and the same everywhere."""

import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.clock import (
    SECOND,
    ManualClock,
    Stopwatch,
    SystemClock,
    from_datetime,
    to_datetime,
    to_microseconds,
)

VIENNA = ZoneInfo("Europe/Vienna")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

aware = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone
    timezones=st.sampled_from([UTC, VIENNA, ZoneInfo("Asia/Kathmandu"), ZoneInfo("Pacific/Apia")]),
)


@given(st.timedeltas())
def test_a_timedelta_is_converted_exactly(length):
    assert to_microseconds(length) * MICROSECOND == length


@pytest.mark.parametrize(
    ("seconds", "microseconds"),
    [
        (0, 0),
        (1, SECOND),
        (0.000001, 1),
        (0.1, 100_000),
        (1.1, 1_100_000),
        (0.000249, 249),
        (1.001, 1_001_000),
        (1e-7, 0),
        (-2.5, -2_500_000),
        (86_400 * 366 * 100, 86_400 * 366 * 100 * SECOND),
    ],
)
def test_seconds_are_rounded_to_the_nearest_microsecond(seconds, microseconds):
    assert to_microseconds(seconds) == microseconds


def test_microseconds_are_integers_whatever_they_came_from():
    for length in (1, 1.0, timedelta(seconds=1)):
        assert type(to_microseconds(length)) is int
    assert type(from_datetime(EPOCH)) is int


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_datetime_survives_the_way_there_and_back(moment):
    assert to_datetime(from_datetime(moment)) == moment


@given(aware)
def test_the_zone_of_a_datetime_makes_no_difference(moment):
    assert from_datetime(moment) == from_datetime(moment.astimezone(UTC))


@given(aware, st.integers(1, 10**15))
def test_a_later_moment_is_a_greater_number(moment, microseconds):
    later = to_datetime(from_datetime(moment) + microseconds) if moment.year < 9000 else None
    if later is not None:
        assert from_datetime(later) - from_datetime(moment) == microseconds


def test_far_moments_are_exact_to_the_microsecond():
    moment = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert to_datetime(from_datetime(moment)) == moment
    assert from_datetime(moment) - from_datetime(moment - MICROSECOND) == 1


def test_the_epoch_is_zero_and_before_it_is_negative():
    assert from_datetime(EPOCH) == 0
    assert from_datetime(EPOCH - MICROSECOND) == -1
    assert to_datetime(-1) == EPOCH - MICROSECOND


def test_a_moment_is_given_back_in_utc():
    assert to_datetime(0).tzinfo is UTC


def test_the_hour_that_occurs_twice_is_two_moments():
    first = datetime(2025, 10, 26, 2, 30, tzinfo=VIENNA, fold=0)
    second = datetime(2025, 10, 26, 2, 30, tzinfo=VIENNA, fold=1)
    assert from_datetime(second) - from_datetime(first) == 3600 * SECOND


def test_the_night_of_the_change_has_23_hours():
    before = datetime(2025, 3, 29, 12, tzinfo=VIENNA)
    after = datetime(2025, 3, 30, 12, tzinfo=VIENNA)
    assert from_datetime(after) - from_datetime(before) == 23 * 3600 * SECOND


def test_the_zone_of_the_process_makes_no_difference(monkeypatch):
    moment = datetime(2025, 7, 1, 12, tzinfo=timezone(timedelta(hours=-7)))
    found = set()
    for zone in ("UTC", "Europe/Vienna", "Pacific/Apia"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        found.add((from_datetime(moment), to_datetime(SECOND)))
    monkeypatch.undo()
    time.tzset()
    assert len(found) == 1


def test_a_naive_datetime_is_refused():
    with pytest.raises(TypeError, match="offset-naive"):
        from_datetime(datetime(2025, 1, 1))  # noqa: DTZ001 - the mistake under test


def test_the_system_clock_tells_the_time_in_microseconds():
    before = time.time_ns() // 1000
    now = SystemClock().now()
    assert before <= now <= time.time_ns() // 1000
    assert type(now) is int


def test_a_manual_clock_stands_still():
    clock = ManualClock(5)
    assert clock.now() == clock.now() == 5


def test_a_manual_clock_moves_when_told():
    clock = ManualClock(start=0)
    clock.advance(1.5)
    assert clock.now() == 1_500_000
    clock.advance(-0.5)
    assert clock.now() == SECOND


def test_a_stopwatch_goes_on_when_the_clock_is_set_back(monkeypatch):
    before = SystemClock().now()
    watch = Stopwatch()
    assert 0 <= watch.started - before < SECOND
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    began, first = time.monotonic(), watch.now()
    assert first >= watch.started
    time.sleep(0.01)
    assert 10_000 <= watch.now() - first <= (time.monotonic() - began) * SECOND + 1
