"""Return values as they are kept, and those that are no values but work."""

import json

import pytest

from django_jobs.exceptions import InvalidResult
from django_jobs.worker.returned import Encoded, encoded_value


def yields():
    yield 1


async def yields_later():
    yield 1


async def waits():
    return 1


@pytest.mark.parametrize(
    ("function", "kind"),
    [(yields, "a generator"), (yields_later, "an asynchronous generator"), (waits, "a coroutine")],
)
def test_work_that_nobody_has_done_is_no_return_value(function, kind):
    with pytest.raises(InvalidResult, match=f"returned {kind} that has not run to its end"):
        encoded_value(function())


def test_a_generator_that_was_begun_and_left_is_none_either():
    half = yields()
    next(half)
    with pytest.raises(InvalidResult):
        encoded_value(half)


def test_a_generator_that_has_run_to_its_end_is_not_kept_and_fails_nothing():
    done = yields()
    assert list(done) == [1]
    kept = encoded_value(done)
    assert kept.json == "null"
    assert "the return value was not kept" in kept.note


@pytest.mark.parametrize("value", [iter([1]), range(2), map(str, [1]), {1, 2}, object()])
def test_what_else_is_not_json_is_not_kept_and_fails_nothing(value):
    assert "the return value was not kept" in encoded_value(value).note


@pytest.mark.parametrize("value", [None, 1, "one", {"a": [1.5, None]}])
def test_json_is_kept_as_it_is(value):
    assert encoded_value(value) == Encoded(json.dumps(value, separators=(",", ":")))
