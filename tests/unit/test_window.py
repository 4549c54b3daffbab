"""A rate limit holds in every window, wherever it begins, and most of it can be used."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.backends.window import LATE_MICROSECONDS, Rate, Usage
from django_jobs.clock import SECOND

START = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("text", "limit", "seconds"),
    [("60/m", 60, 60), ("5/s", 5, 1), ("7/h", 7, 3600), ("1/d", 1, 86400)],
)
def test_a_rate_is_read(text, limit, seconds):
    assert Rate.parse(text) == Rate(limit, seconds * SECOND)


@pytest.mark.parametrize("text", ["", "60", "0/m", "60/min", "-1/s", "1.5/s", "60 / m", "1/w"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(ValueError, match="is no rate; write"):
        Rate.parse(text)


def most_in_a_window(starts, window):
    """By brute force: the most starts in a window that begins with one of them."""
    return max(sum(begin <= at < begin + window for at in starts) for begin in starts)


@given(
    st.sampled_from(["5/s", "60/m", "3/h"]),
    st.lists(st.tuples(st.floats(0, 0.4), st.integers(1, 9), st.floats(0, 1)), max_size=60),
)
def test_no_window_holds_more_however_they_come(text, arrivals):
    rate = Rate.parse(text)
    now, told, starts = START, None, []
    for pause, wanted, late in arrivals:
        now += int(pause * rate.window)
        usage = Usage.read(rate, told, now)
        count = min(wanted, usage.free())
        starts += [now + int(late * LATE_MICROSECONDS)] * count
        told = json.loads(json.dumps(usage.added(count, now).told()))
    assert not starts or most_in_a_window(starts, rate.window) <= rate.limit


@pytest.mark.parametrize("text", ["50/s", "60/m", "10/s"])
def test_at_least_95_percent_are_used_when_there_is_always_more(text):
    rate = Rate.parse(text)
    now, told, used, until = START, None, 0, START + 20 * rate.window
    while now < until:
        usage = Usage.read(rate, told, now)
        count = usage.free()
        used += count
        usage = usage.added(count, now)
        told = usage.told()
        now += max(usage.free_in(now), 1)
    assert 0.95 <= used / (20 * rate.limit) <= 1.05  # the first burst is one more


def test_the_next_one_is_free_at_the_moment_that_is_told():
    rate = Rate.parse("2/s")
    usage = Usage(rate, {}).added(2, START)
    assert usage.free() == 0
    wait = usage.free_in(START)
    assert Usage.read(rate, usage.told(), START + wait - 1).free() == 0
    assert Usage.read(rate, usage.told(), START + wait).free() == 2


def test_what_did_not_start_is_given_back_however_much_later():
    usage = Usage(Rate.parse("20/s"), {}).added(12, START).added(8, START + SECOND // 2)
    assert usage.free() == 0
    assert usage.without(5, START).free() == 5
    assert usage.without(8, START + SECOND // 2).free() == 8
    assert usage.without(15, START).free() == 15
    assert usage.without(99, START + SECOND // 2).free() == 8


def test_what_others_started_meanwhile_counts_no_shorter_for_what_is_given_back():
    rate = Rate.parse("20/s")
    usage = Usage(rate, {}).added(10, START).added(10, START + SECOND // 2).without(10, START)
    end = START + SECOND // 2 + rate.kept * rate.slot
    assert Usage.read(rate, usage.told(), end - rate.slot).free() == 10
    assert Usage.read(rate, usage.told(), end).free() == 20


@pytest.mark.parametrize("told", [None, "", {}, {"slot": 7, "counts": {"1": 5}}])
def test_what_was_counted_for_another_rate_does_not_count(told):
    assert Usage.read(Rate.parse("5/s"), told, START).free() == 5
