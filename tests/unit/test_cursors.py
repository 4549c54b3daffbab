"""Where claims go on behind dead index entries, and when they look from the start again."""

import pytest

from django_jobs.backends.database.cursors import (
    GOES_ON_FOR,
    LONGEST_SECONDS,
    PAUSE_SECONDS,
    SLOW_SECONDS,
    Cursors,
    Place,
)

QUEUE = "mail"
FIRST, SECOND = Place(0, 1, "a"), Place(0, 2, "b")
SLOW = 10 * SLOW_SECONDS


class Watch:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def cursors(watch):
    return Cursors(watch)


def test_where_no_claim_is_slow_each_one_starts_at_the_start(cursors):
    cursors.looked(QUEUE, SLOW_SECONDS * 0.99, FIRST)
    assert cursors.place(QUEUE) is None


def test_after_a_slow_claim_the_next_ones_go_on_behind_its_last_job(cursors):
    cursors.looked(QUEUE, SLOW, FIRST)
    assert cursors.place(QUEUE) == FIRST
    cursors.went_on(QUEUE, SLOW / 10, SECOND)
    assert cursors.place(QUEUE) == SECOND
    assert cursors.place("another") is None


@pytest.mark.parametrize(
    ("took", "lasts"), [(SLOW, GOES_ON_FOR * SLOW), (1000 * SLOW, LONGEST_SECONDS)]
)
def test_for_a_multiple_of_what_it_took_and_never_for_long(cursors, watch, took, lasts):
    cursors.looked(QUEUE, took, FIRST)
    watch.now += lasts * 0.99
    assert cursors.place(QUEUE) == FIRST
    watch.now += lasts * 0.02
    assert cursors.place(QUEUE) is None


def test_who_finds_nothing_behind_a_place_starts_at_the_start(cursors):
    cursors.looked(QUEUE, SLOW, FIRST)
    cursors.went_on(QUEUE, SLOW / 10, None)
    assert cursors.place(QUEUE) is None


def test_a_slow_claim_that_found_nothing_leaves_no_place(cursors):
    cursors.looked(QUEUE, SLOW, None)
    assert cursors.place(QUEUE) is None


def test_a_place_that_makes_it_no_faster_is_not_used_for_a_while(cursors, watch):
    cursors.looked(QUEUE, SLOW, FIRST)
    cursors.went_on(QUEUE, SLOW * 0.9, SECOND)
    cursors.looked(QUEUE, SLOW, SECOND)
    assert cursors.place(QUEUE) is None
    watch.now += PAUSE_SECONDS
    cursors.looked(QUEUE, SLOW, SECOND)
    assert cursors.place(QUEUE) == SECOND
