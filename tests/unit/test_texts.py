"""Texts of others: nothing in them turns a text round, hides in it or begins a line of its own."""

import sys
import time
import unicodedata

import pytest

from django_jobs.texts import one_line, printable

ODD = {"Cc", "Cf", "Cs", "Zl", "Zp"}
JOINERS = "\u200c\u200d"
EVERY = [chr(number) for number in range(sys.maxunicode + 1)]


def changed(write):
    return {character for character in EVERY if write(character) != character}


def odd():
    return {one for one in EVERY if unicodedata.category(one) in ODD and one not in JOINERS}


def test_on_one_line_every_odd_character_is_written_out_and_no_other():
    assert changed(one_line) >= odd()
    assert not {one for one in changed(one_line) if one.isprintable()}


def test_a_text_of_several_lines_keeps_them_and_its_tabs():
    assert changed(one_line) - changed(printable) == {"\n", "\t"}
    assert printable("a\n\tb\r\nc") == "a\n\tb\r\nc"
    assert printable("a\rb\r\r\n") == "a\\rb\\r\r\n"
    assert one_line("a\r\nb") == "a\\r\\nb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x\nCRITICAL forged", "x\\nCRITICAL forged"),
        ("\x1b[2J\t\u202e\u2066\ufeff\ud800", "\\x1b[2J\\t\\u202e\\u2066\\ufeff\\ud800"),
        ("\U000e0041 tagged", "\\U000e0041 tagged"),
        ("Grüße 你好 👩‍👧 می‌خواهم\xa0!", "Grüße 你好 👩‍👧 می‌خواهم\xa0!"),
    ],
)
def test_what_is_written_out(text, shown):
    assert one_line(text) == shown


@pytest.mark.parametrize("text", ["\n" * 262_144, "\u202ea" * 131_072, "é\n" * 131_072])
def test_a_hostile_text_takes_no_longer_than_its_length(text):
    began = time.perf_counter()
    assert len(one_line(text)) > len(text)
    assert time.perf_counter() - began < 1
