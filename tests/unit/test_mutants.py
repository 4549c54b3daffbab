"""The mutants themselves: what is changed, what is left alone, and that each is a change."""

import re
from unittest.mock import MagicMock

import pytest

from tests.mutants import chosen
from tests.mutants.changing import mutants_of

SOURCE = '''
"""A docstring."""
from __future__ import annotations
LIMIT = 3
WORDS = frozenset({"a", "b"})

EVERY = {**{}, "c": 5}

def judged(size: int = 1) -> bool:
    """Another one."""
    if not size:
        raise ValueError("it has no size")
    return size < LIMIT and size != 2
'''


def changes(source):
    return {(mutant.before, mutant.after) for mutant in mutants_of(source, "sample.py")}


@pytest.mark.parametrize(
    "change",
    [
        ("3", "4"),
        ("3", "2"),
        ("{'a', 'b'}", "the same without 'a'"),
        ("{'a', 'b'}", "the same without 'b'"),
        ("'a'", "'aX'"),
        ("if not size", "if True"),
        ("if not size", "if False"),
        ("not size", "size"),
        ("raise ValueError('it has no size')", "pass"),
        ("size < LIMIT", "size <= LIMIT"),
        ("size < LIMIT", "size >= LIMIT"),
        ("size != 2", "size == 2"),
        ("size < LIMIT and size != 2", "size < LIMIT or size != 2"),
        ("size < LIMIT and size != 2", "size < LIMIT"),
        ("size < LIMIT and size != 2", "size != 2"),
        ("return size < LIMIT and size != 2", "return None"),
    ],
)
def test_a_small_change_is_made(change):
    assert change in changes(SOURCE)


QUERIES = """
def taken(rows, at_once, now, done):
    found = rows.filter(state=1, due__lte=now).order_by("rank", "due")
    found = found.select_for_update(skip_locked=True)[:at_once]
    done.by = found.update(token=None)
    return f"SELECT a FROM jobs WHERE state = {now} AND token = %s ORDER BY a LIMIT 1"
"""
FOUND = "rows.filter(state=1, due__lte=now)"
SQL = "f'SELECT a FROM jobs WHERE state = {now} AND token = %s ORDER BY a LIMIT 1'"


@pytest.mark.parametrize(
    "change",
    [
        (FOUND, "rows.exclude(state=1, due__lte=now)"),
        (FOUND, "the same without state=1"),
        (FOUND, "the same with due__lt"),
        (FOUND, "the same with due__gt"),
        (f"{FOUND}.order_by('rank', 'due')", "the same without 'rank'"),
        ("found.select_for_update(skip_locked=True)", "found"),
        (":at_once", ":"),
        ("done.by = found.update(token=None)", "pass"),
        ("found.update(token=None)", "the same without token=None"),
        (SQL, "the same with '({…}) IS NOT NULL' for 'state = {…}'"),
        (SQL, "the same with '(%s) IS NOT NULL' for 'token = %s'"),
        (SQL, "the same with '' for ' ORDER BY a'"),
        (SQL, "the same with '' for ' LIMIT 1'"),
        (SQL, "the same with '2' for '1'"),
    ],
)
def test_a_small_change_of_a_query_is_made(change):
    assert change in changes(QUERIES)


def test_a_changed_statement_keeps_its_values():
    (mutant,) = (
        one
        for one in mutants_of(QUERIES, "sample.py")
        if one.after == "the same with '(%s) IS NOT NULL' for 'token = %s'"
    )
    space = {}
    exec(mutant.code, space)  # noqa: S102 - the sample above
    said = space["taken"](MagicMock(), 1, 7, MagicMock())
    assert said == "SELECT a FROM jobs WHERE state = 7 AND (%s) IS NOT NULL ORDER BY a LIMIT 1"


def test_nothing_else_is_changed():
    touched = {before for before, _ in changes(SOURCE)}
    assert not any("docstring" in text or "Another" in text for text in touched)
    assert not touched & {"int", "bool", "'it has no size'", "'annotations'"}


def test_each_mutant_has_a_name_of_its_own_and_behaves_as_it_says():
    mutants = list(mutants_of("def f(n):\n    return n < 1 or n < 1\n", "sample.py"))
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    (first,) = (one for one in mutants if one.name == "f: n < 1 → n >= 1")
    (second,) = (one for one in mutants if one.name == "f: n < 1 → n >= 1 (2)")
    for mutant in (first, second):
        space = {}
        exec(mutant.code, space)  # noqa: S102 - the sample above
        assert (space["f"](0), space["f"](5)) == (True, True)


def test_the_source_is_as_it_was_after_all_of_them():
    assert changes(SOURCE) == changes(SOURCE)


CHOSEN = pytest.mark.parametrize("change", chosen.changes(), ids=lambda change: change.breaks)


@CHOSEN
def test_a_chosen_change_finds_the_text_that_it_changes(change):
    text = (chosen.ROOT / "django_jobs" / change.file).read_text("utf-8")
    assert text.count(change.before) == 1
    assert change.after != change.before


@CHOSEN
def test_a_chosen_change_names_a_test_that_exists(change):
    path, *_, name = change.test.split("::")
    suites = (chosen.ROOT / "django_jobs/testing/conformance").glob("*.py")
    texts = [file.read_text("utf-8") for file in (chosen.ROOT / path, *suites)]
    assert any(re.search(rf"^ *def {name}\(", text, re.MULTILINE) for text in texts)
