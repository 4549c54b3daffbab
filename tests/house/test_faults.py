"""The table of faults promises nothing that no test shows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "guarantees.md"
ROW = re.compile(r"^\| (.+?) \| .+ \| `(tests/[\w/.]+)` `(\w+)` \|$", re.MULTILINE)


def rows():
    text = PAGE.read_text("utf-8").partition("## What happens when\n")[2].partition("\n## ")[0]
    found = ROW.findall(text)
    assert len(found) == sum(line.startswith("| ") for line in text.splitlines()) - 1
    return found


def test_there_is_a_table():
    assert len(rows()) > 1


@pytest.mark.parametrize(("fault", "path", "word"), rows())
def test_a_fault_is_shown_by_a_test(fault, path, word):
    names = re.findall(r"^def (test_\w+)", (ROOT / path).read_text("utf-8"), re.MULTILINE)
    assert [name for name in names if word in name], f"nothing shows: {fault}"
