"""How many jobs are handed over at a time, judged from what was just observed."""

import pytest

from django_jobs.worker.pool.pace import LARGEST_CHUNK, Pace


def paced(**seconds):
    pace = Pace()
    for handler, took in seconds.items():
        pace.observe(handler, took)
    return pace


def test_an_unknown_handler_goes_alone():
    assert Pace().chunk("new") == 1
    assert Pace().ahead(4) == 0


@pytest.mark.parametrize(
    ("seconds", "chunk"),
    [(0.0, LARGEST_CHUNK), (0.001, 7), (0.003, 2), (0.005, 1), (0.1, 1), (60.0, 1)],
)
def test_a_chunk_is_a_few_milliseconds_of_work(seconds, chunk):
    assert paced(one=seconds).chunk("one") == chunk


def test_short_jobs_are_fetched_ahead_and_long_ones_are_not():
    assert paced(one=0.0001).ahead(2) > 300
    assert paced(one=0.01).ahead(2) == 4
    assert paced(one=1.0).ahead(2) == 0


def test_handlers_are_judged_apart_and_the_latest_counts_more_and_more():
    pace = paced(short=0.0001, long=5.0)
    assert pace.chunk("short") > pace.chunk("long") == 1
    for _ in range(50):
        pace.observe("long", 0.0001)
    assert pace.chunk("long") > 1
