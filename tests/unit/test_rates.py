"""A rate limit holds in every window, wherever it begins, and most of it can be used."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.backends.rates import SLOTS, Rate, Usage
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
    st.lists(
        st.tuples(st.floats(0, 0.4), st.integers(1, 9), st.floats(0, 1), st.floats(0, 1)),
        max_size=60,
    ),
)
def test_no_window_holds_more_however_they_come_and_however_late_they_start(text, arrivals):
    rate = Rate.parse(text)
    now, told, starts = START, None, []
    for pause, wanted, allowed, late in arrivals:
        now += int(pause * rate.window)
        usage = Usage.read(rate, told, now)
        count = min(wanted, usage.free())
        latest = now + int(allowed * rate.window)  # each process allows what it finds it needs
        starts += [now + int(late * (latest - now))] * count
        told = json.loads(json.dumps(usage.added(count, latest).to_store()))
    assert not starts or most_in_a_window(starts, rate.window) <= rate.limit


@pytest.mark.parametrize("text", ["50/s", "60/m", "10/s", "5/h"])
def test_at_least_95_percent_are_used_when_there_is_always_more(text):
    rate = Rate.parse(text)
    now, told, used, until = START, None, 0, START + 20 * rate.window
    while now < until:
        usage = Usage.read(rate, told, now)
        count = usage.free()
        used += count
        usage = usage.added(count, now + rate.late)
        told = usage.to_store()
        now += max(usage.free_in(now), 1)
    assert 0.95 <= used / (20 * rate.limit) <= 1.05  # the first burst is one more


def test_the_next_one_is_free_at_the_moment_that_is_told():
    rate = Rate.parse("2/s")
    usage = Usage(rate, {}).added(2, START)
    assert usage.free() == 0
    wait = usage.free_in(START)
    assert Usage.read(rate, usage.to_store(), START + wait - 1).free() == 0
    assert Usage.read(rate, usage.to_store(), START + wait).free() == 2


def test_what_did_not_start_is_given_back_however_much_later():
    later = START + SECOND // 2
    usage = Usage(Rate.parse("20/s"), {}).added(12, START).added(8, later)
    assert usage.free() == 0
    assert usage.without(5, START).free() == 5
    assert usage.without(8, later).free() == 8
    assert usage.without(15, START).free() == 12
    assert usage.without(15, START).without(8, later).free() == 20


def test_what_is_given_back_when_it_counts_no_longer_takes_away_no_start_of_others():
    rate = Rate.parse("20/s")
    usage = Usage(rate, {}).added(10, START).added(10, START + SECOND // 2)
    end = START + (SLOTS + 1) * rate.slot
    usage = Usage.read(rate, usage.to_store(), end).without(10, START)
    assert usage.free() == 10
    assert Usage.read(rate, usage.to_store(), end).free() == 10


@pytest.mark.parametrize("told", [None, "", {}, {"slot": 7, "counts": {"1": 5}}])
def test_what_was_counted_for_another_rate_does_not_count(told):
    assert Usage.read(Rate.parse("5/s"), told, START).free() == 5


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("20/s", 40), ("60/m", 300), ("7/h", 1000), ("1/d", 1000)]
)
def test_so_long_after_its_claim_a_job_may_start(text, milliseconds):
    assert Rate.parse(text).late == milliseconds * 1000
