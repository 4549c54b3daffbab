"""A parent's garbage collector: seldom, and afterwards as it was."""

import gc

import pytest

from django_jobs.worker.pool.build import YOUNGEST, rare_collections


@pytest.fixture(autouse=True)
def as_before():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_it_looks_seldom_and_not_at_what_was_there_before():
    gc.set_threshold(700, 11, 12)
    with rare_collections():
        assert gc.get_threshold() == (YOUNGEST, 11, 12)
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (700, 11, 12)
    assert gc.get_freeze_count() == 0


def test_whoever_wants_it_still_more_seldom_or_never_has_it_so():
    for wanted in (YOUNGEST + 1, 0):
        gc.set_threshold(wanted, 10, 10)
        with rare_collections():
            assert gc.get_threshold()[0] == wanted
        assert gc.get_threshold()[0] == wanted


def test_it_is_as_it_was_also_after_an_error():
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ZeroDivisionError), rare_collections():
        1 / 0  # noqa: B018 - the error is the point
    assert gc.get_threshold() == (700, 10, 10)
