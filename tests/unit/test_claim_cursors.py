"""Where claims go on behind dead index entries, and when they look from the start again."""

import pytest

from django_jobs.backends.database.claim import (
    GOES_ON_FOR,
    LONGEST_SECONDS,
    MANY,
    CursorPlace,
    Cursors,
)

QUEUE = "mail"
FIRST, SECOND = CursorPlace(0, 1, "a"), CursorPlace(0, 2, "b")
SECONDS = 0.1


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


def test_where_few_entries_are_dead_each_claim_starts_at_the_start_however_long_it_takes(cursors):
    cursors.looked(QUEUE, MANY - 1, 10.0, FIRST)
    assert cursors.place(QUEUE) is None


def test_after_a_claim_that_passed_many_the_next_ones_go_on_behind_its_last_job(cursors):
    cursors.looked(QUEUE, MANY, SECONDS, FIRST)
    assert cursors.place(QUEUE) == FIRST
    cursors.went_on(QUEUE, SECOND)
    assert cursors.place(QUEUE) == SECOND
    assert cursors.place("another") is None


@pytest.mark.parametrize(
    ("took", "lasts"), [(SECONDS, GOES_ON_FOR * SECONDS), (1000 * SECONDS, LONGEST_SECONDS)]
)
def test_for_a_multiple_of_what_it_took_and_never_for_long(cursors, watch, took, lasts):
    cursors.looked(QUEUE, MANY, took, FIRST)
    watch.now += lasts * 0.99
    assert cursors.place(QUEUE) == FIRST
    watch.now += lasts * 0.02
    assert cursors.place(QUEUE) is None


def test_who_finds_nothing_behind_a_place_starts_at_the_start(cursors):
    cursors.looked(QUEUE, MANY, SECONDS, FIRST)
    cursors.went_on(QUEUE, None)
    assert cursors.place(QUEUE) is None


def test_a_claim_that_passed_many_and_took_nothing_leaves_no_place(cursors):
    cursors.looked(QUEUE, MANY, SECONDS, None)
    assert cursors.place(QUEUE) is None
