"""Pauses that grow as long as something goes wrong."""

import pytest

from django_jobs.retry import Backoff, spread


def test_pauses_double_up_to_the_longest():
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_without_a_longest_they_go_on_doubling():
    backoff = Backoff(1.0)
    assert [backoff.next() for _ in range(12)][-1] == 2048.0


def test_a_reset_begins_anew():
    backoff = Backoff(0.5, 3.0)
    for _ in range(3):
        backoff.next()
    backoff.reset()
    assert backoff.pause == 0.5
    assert [backoff.next() for _ in range(2)] == [0.5, 1.0]


def test_to_look_at_the_pause_does_not_use_it_up():
    backoff = Backoff(0.5, 3.0)
    assert [backoff.pause, backoff.pause, backoff.next(), backoff.pause] == [0.5, 0.5, 0.5, 1.0]


def test_a_first_pause_beyond_the_longest_is_the_longest():
    assert Backoff(5.0, 3.0).next() == 3.0


@pytest.mark.parametrize("seconds", [0.0, 0.1, 60.0])
def test_what_is_spread_is_between_half_of_it_and_all(seconds):
    spreads = {spread(seconds) for _ in range(50)}
    assert all(seconds / 2 <= one <= seconds for one in spreads)
    assert len(spreads) > 1 or not seconds
