"""Return values as they are kept, why some are not, and those that are no values but work."""

import json
from datetime import date
from decimal import Decimal
from uuid import UUID

import pytest

from django_jobs.backends.values import NOT_KEPT
from django_jobs.exceptions import InvalidResult
from django_jobs.execution.return_value import LONGEST_NOTE, Encoded, encoded_value


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
    assert kept.stored == NOT_KEPT + kept.note
    assert kept.note.startswith("value is of type generator, which is not JSON; ")


@pytest.mark.parametrize("value", [iter([1]), range(2), map(str, [1]), {1, 2}, object()])
def test_what_else_is_not_json_is_not_kept_and_fails_nothing(value):
    kept = encoded_value(value)
    assert f"value is of type {type(value).__name__}, which is not JSON" in kept.note
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(kept.stored)


@pytest.mark.parametrize(
    ("value", "kind"), [(date(2026, 1, 1), "date"), (Decimal(1), "Decimal"), (UUID(int=1), "UUID")]
)
def test_why_it_is_not_kept_names_the_place_the_type_and_the_way_out(value, kind):
    assert encoded_value({"a": [value]}).note == (
        f"value.a[0] is of type {kind}, which is not JSON; "
        "use plain values (a primary key, an ISO date, a string)"
    )


def test_what_a_value_raises_is_why_it_is_not_kept():
    class Hostile(dict):
        def items(self):
            raise RuntimeError("no items for you")

    note = encoded_value(Hostile(a={1})).note
    assert note == "RuntimeError was raised while it was turned into JSON"


def test_the_reason_can_be_stored_and_stands_on_one_line_whatever_names_are_in_it():
    note = encoded_value({"a\ud800\x00\nb\u202e": {1}}).note
    assert note.startswith(r"value.a\ud800\x00\nb\u202e is of type set")


def test_the_reason_is_short_however_long_a_name_in_it_is():
    assert len(encoded_value({"x" * 10_000: {1}}).note) <= LONGEST_NOTE


@pytest.mark.parametrize("letter", ["x", "ж", "語", "\U0001f600"])
def test_a_value_as_long_as_is_allowed_is_kept_whatever_its_letters(letter):
    times = (262_144 - 2) // len(letter.encode())
    assert json.loads(encoded_value(letter * times).stored) == letter * times
    assert encoded_value(letter * (times + 1)).note == (
        f"it has {2 + (times + 1) * len(letter.encode()):,} bytes as JSON, MAX_RESULT_BYTES "
        "allows 262,144; store the data and return a key to it"
    )


def test_the_limit_is_that_of_the_settings(settings):
    settings.DJANGO_JOBS = {"MAX_RESULT_BYTES": 1024}
    assert not encoded_value("x" * 1022).note
    assert "1,025 bytes as JSON, MAX_RESULT_BYTES allows 1,024" in encoded_value("x" * 1023).note


@pytest.mark.parametrize("value", [None, 1, "one", {"a": [1.5, None]}])
def test_json_is_kept_as_it_is(value):
    assert encoded_value(value) == Encoded(json.dumps(value, separators=(",", ":")))
