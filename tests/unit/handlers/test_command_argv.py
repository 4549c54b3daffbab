"""Payloads that are command lines: how long they and their words may be."""

import pytest

from django_jobs.exceptions import InvalidPayload
from django_jobs.handlers.command import words_of


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (["a"] * 1000, ["a"] * 1000),
        ("a  b\n", ["a", "b"]),
        (["x" * 100_000], ["x" * 100_000]),
        (["a", ""], ["a", ""]),
        (["a", 2**63 - 1, -(2**63)], ["a", "9223372036854775807", "-9223372036854775808"]),
        (("a", 5), ["a", "5"]),
    ],
    ids=["many", "a text", "a long word", "an empty one", "numbers", "a tuple"],
)
def test_what_is_a_command_line(payload, words):
    assert words_of("command", payload) == words


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (["a"] * 1001, "a list of 1 to 1000 words"),
        ([], "a list of 1 to 1000 words"),
        (" ", "a list of 1 to 1000 words"),
        ({"a": 1}, "a list of 1 to 1000 words"),
        (["x" * 100_001], "word 0 is not 1 to 100,000 characters"),
        (["", "a"], "word 0 is not 1 to"),
        (["a", "b\0"], "word 1 is not 1 to"),
        (["a", 2**63], "word 1 is too large a number"),
        (["a", -(2**63) - 1], "word 1 is too large a number"),
        (["a", True], "word 1 is of type bool"),
        (["a", None], "word 1 is of type NoneType"),
    ],
    ids=range(11),
)
def test_what_is_none(payload, told):
    with pytest.raises(InvalidPayload, match=told):
        words_of("command", payload)
