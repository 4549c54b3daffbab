"""How long a retry waits: the numbers of the documents, and what no policy may ever say."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.retry import (
    DEFAULT_MAXIMUM,
    JITTER,
    LONGEST_DELAY,
    Delays,
    Exponential,
    Fixed,
    InvalidRetry,
    NoBackoff,
    RetryPolicy,
    built_in,
    normalised,
)

numbers = st.floats() | st.integers(-(2**70), 2**70)
retry_numbers = st.integers(-5, 2**31)


def waits(policy: RetryPolicy, count: int) -> list[float]:
    return [policy.delay(number) for number in range(1, count + 1)]


def test_no_backoff_is_again_at_once():
    assert waits(NoBackoff(), 3) == [0, 0, 0]


def test_a_fixed_wait_is_always_the_same_and_never_jittered():
    assert waits(Fixed(), 3) == [5, 5, 5]
    assert set(waits(Fixed(base=7), 200)) == {7}


def test_a_fixed_wait_knows_no_cap_but_the_longest():
    assert Fixed(base=100_000).delay(1) == 100_000
    assert Fixed(base=10**12).delay(1) == LONGEST_DELAY


def test_exponential_waits_double_from_five_seconds_to_five_minutes():
    assert waits(Exponential(jitter=False), 8) == [5, 10, 20, 40, 80, 160, 300, 300]


def test_own_base_multiplier_and_maximum_count():
    policy = Exponential(base=1, multiplier=3, maximum=50, jitter=False)
    assert waits(policy, 6) == [1, 3, 9, 27, 50, 50]


def test_a_multiplier_below_one_shortens_the_waits():
    assert waits(Exponential(base=8, multiplier=0.5, jitter=False), 4) == [8, 4, 2, 1]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_jitter_spreads_a_wait_by_at_most_fifteen_percent_either_way(number):
    plain = Exponential(jitter=False).delay(number)
    jittered = [Exponential().delay(number) for _ in range(2_000)]
    assert JITTER == 0.15
    assert plain * 0.85 <= min(jittered) < plain * 0.90
    assert plain * 1.10 < max(jittered) <= plain * 1.15


def test_the_cap_is_applied_after_the_jitter():
    jittered = [Exponential().delay(20) for _ in range(2_000)]
    assert max(jittered) == DEFAULT_MAXIMUM
    assert min(jittered) >= DEFAULT_MAXIMUM * 0.85


def test_a_wait_just_below_the_cap_is_not_jittered_above_it():
    policy = Exponential(base=290)
    assert max(policy.delay(1) for _ in range(2_000)) == 300


@pytest.mark.parametrize("multiplier", [2, 2.0, 10**6, 1e308])
def test_a_wait_too_long_for_a_float_is_the_maximum(multiplier):
    policy = Exponential(multiplier=multiplier, jitter=False)
    assert policy.delay(5_000) == DEFAULT_MAXIMUM
    assert policy.delay(2**31) == DEFAULT_MAXIMUM


def test_a_base_of_nothing_stays_nothing_however_often():
    assert {Exponential(base=0).delay(number) for number in (1, 2, 1_000, 5_000)} == {0}


def test_a_negative_base_counts_as_nothing():
    assert waits(Exponential(base=-5), 3) == [0, 0, 0]
    assert Fixed(base=-5).delay(1) == 0


@pytest.mark.parametrize("multiplier", [0, -1, -0.5, math.nan])
def test_a_multiplier_that_makes_no_sense_is_two(multiplier):
    assert waits(Exponential(multiplier=multiplier, jitter=False), 3) == [5, 10, 20]


@pytest.mark.parametrize("maximum", [0, -1, 0.5])
def test_a_maximum_below_a_second_is_a_second(maximum):
    assert waits(Exponential(maximum=maximum, jitter=False), 2) == [1, 1]


@pytest.mark.parametrize("number", [0, -1, -100])
def test_a_retry_number_below_one_is_the_first(number):
    assert Exponential(jitter=False).delay(number) == 5
    assert Delays((1, 2)).delay(number) == 1


def test_the_last_of_a_list_of_waits_repeats():
    assert waits(Delays((1, 2.5, 60)), 5) == [1, 2.5, 60, 60, 60]
    assert waits(Delays((7,)), 3) == [7, 7, 7]


def test_every_policy_fits_the_protocol():
    for policy in (NoBackoff(), Fixed(), Exponential(), Delays((1,))):
        assert isinstance(policy, RetryPolicy)


# -- spellings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ("none", NoBackoff()),
        ("fixed", Fixed(5)),
        ("exponential", Exponential(5, 2, 300, jitter=True)),
        ([1, 2.5], Delays((1, 2.5))),
        ((1, 2.5), Delays((1, 2.5))),
        ({}, Exponential()),
        ({"STRATEGY": "none"}, NoBackoff()),
        ({"STRATEGY": "fixed", "BASE": 9}, Fixed(9)),
        ({"BASE": 1, "MULTIPLIER": 3, "MAX": 60}, Exponential(1, 3, 60)),
        ({"STRATEGY": "exponential", "JITTER": False}, Exponential(jitter=False)),
        ({"strategy": "exponential", "max": 10}, Exponential(maximum=10)),
    ],
    ids=repr,
)
def test_a_spelling_leads_to_its_policy(spec, policy):
    assert built_in(normalised(spec)) == policy


def test_a_dotted_path_is_kept_and_left_to_others_to_import():
    assert normalised("shop.retry.Gentle") == "shop.retry.Gentle"
    assert built_in("shop.retry.Gentle") is None
    assert normalised("no.such.module") == "no.such.module"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sometimes", "'sometimes' is no retry strategy; use one of none, fixed, exponential"),
        ("", "'' is no retry strategy"),
        ("Fixed", "'Fixed' is no retry strategy"),
        (".", "'.' is no retry strategy"),
        ("5.0", "'5.0' is no retry strategy"),
        ("a..b", "'a..b' is no retry strategy"),
        ("shop.retry.", "'shop.retry.' is no retry strategy"),
        ("shop. retry", "'shop. retry' is no retry strategy"),
        ([], "the list of delays is empty"),
        ([1, -1], "delay number 2 is -1; it lies between 0 and"),
        ([1, LONGEST_DELAY + 1], "delay number 2 is"),
        ([math.nan], "delay number 1 is nan"),
        ([math.inf], "delay number 1 is inf"),
        ([10**400], "delay number 1 is 1000"),
        (["1"], "delay number 1 is '1', not a number"),
        ([True], "delay number 1 is True, not a number"),
        ([None], "delay number 1 is None, not a number"),
        (5, "5 is neither a strategy, a list of delays, nor a dict"),
        (None, "None is neither"),
        (True, "True is neither"),
        ({1, 2}, "{1, 2} is neither"),
        ({"STRATEGY": "sometimes"}, "STRATEGY 'sometimes' is not one of none, fixed, exponential"),
        ({"STRATEGY": None}, "STRATEGY None is not one of"),
        ({"STRATEGY": ["fixed"]}, "STRATEGY ['fixed'] is not one of"),
        ({"STRATEGY": "shop.retry.Gentle"}, "STRATEGY 'shop.retry.Gentle' is not one of"),
        ({"BASE": "5"}, "BASE is '5', not a number"),
        ({"BASE": -1}, "BASE is -1; it lies between"),
        ({"MULTIPLIER": -2}, "MULTIPLIER is -2"),
        ({"MAX": math.nan}, "MAX is nan"),
        ({"JITTER": 1}, "JITTER is 1; it is True or False"),
        ({"COLOUR": 1}, "unknown key COLOUR; the keys are BASE, JITTER, MAX, MULTIPLIER, STRATEGY"),
        ({1: 2}, "unknown key 1"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_spelling_that_means_nothing_is_refused_with_what_would(spec, message):
    with pytest.raises(InvalidRetry) as refused:
        normalised(spec)
    assert str(refused.value).startswith(message)


def test_a_list_of_delays_is_copied():
    delays = [1, 2]
    kept = normalised(delays)
    delays.append(3)
    assert kept == [1, 2]


# -- properties ------------------------------------------------------------------------------

amounts = st.floats(0, LONGEST_DELAY) | st.integers(0, int(LONGEST_DELAY))
specs = (
    st.sampled_from(["none", "fixed", "exponential"])
    | st.lists(amounts, min_size=1)
    | st.fixed_dictionaries(
        {},
        optional={
            "STRATEGY": st.sampled_from(["none", "fixed", "exponential"]),
            "BASE": amounts,
            "MULTIPLIER": amounts,
            "MAX": amounts,
            "JITTER": st.booleans(),
        },
    )
)


@given(specs)
def test_normalising_twice_changes_no_more(spec):
    once = normalised(spec)
    assert normalised(once) == once


@given(specs, retry_numbers)
def test_a_policy_that_can_be_spelled_never_says_a_wait_out_of_range(spec, retry_number):
    delay = built_in(normalised(spec)).delay(retry_number)
    assert 0 <= delay <= LONGEST_DELAY


@given(numbers, numbers, numbers, st.booleans(), retry_numbers)
def test_an_exponential_policy_never_fails_whatever_it_is_made_of(base, by, cap, jitter, number):
    delay = Exponential(base, by, cap, jitter).delay(number)
    assert 0 <= delay <= LONGEST_DELAY
    assert delay <= max(cap, 1) or math.isnan(cap)


@given(amounts, amounts, retry_numbers)
def test_a_fixed_policy_and_a_list_never_fail(one, other, number):
    assert Fixed(one).delay(number) == one
    assert Delays((one, other)).delay(number) in {one, other}


@given(st.floats(0.001, 100), st.floats(1, 10), st.integers(1, 50))
def test_without_jitter_waits_never_get_shorter(base, multiplier, number):
    policy = Exponential(base, multiplier, jitter=False)
    assert policy.delay(number) <= policy.delay(number + 1)


@given(
    st.none() | st.integers() | st.text() | st.lists(numbers) | st.dictionaries(st.text(), numbers)
)
def test_normalising_anything_raises_nothing_but_a_refusal(spec):
    with contextlib.suppress(InvalidRetry):
        built_in(normalised(spec))
