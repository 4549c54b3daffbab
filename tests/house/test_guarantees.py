"""The page of guarantees, and its table of faults, promise nothing that no test shows."""

import re
import tomllib
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


TEXT = PAGE.read_text("utf-8")
NO_GUARANTEES = {"What happens when", "What is not promised", "What is not here yet"}
PROMISED = {
    title: text
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    if title not in NO_GUARANTEES
}
CITED = sorted(set(re.findall(r"`((?:tests/)?[\w/.]*test_\w+\.py|tests/[\w/]+)`", TEXT)))


@pytest.mark.parametrize("title", PROMISED)
def test_a_guarantee_cites_the_tests_that_show_it(title):
    shown = PROMISED[title].partition("*Shown:*")[2]
    assert "conformance suite" in shown or set(CITED) & set(re.findall(r"`([\w/.]+)`", shown))


@pytest.mark.parametrize("cited", CITED)
def test_a_cited_test_exists(cited):
    found = list((ROOT / "tests").rglob(cited)) if "/" not in cited else [ROOT / cited]
    assert found
    assert all(one.exists() for one in found)


def test_cited_tests_that_run_only_when_named_are_run_by_ci():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    left_out = settings["tool"]["pytest"]["norecursedirs"]
    script = (ROOT / ".ci/run").read_text("utf-8")
    legs = re.search(r"^LEGS=\(([^)]*)\)$", script, re.MULTILINE)
    named = {one.split("/")[1] for one in CITED if one.startswith("tests/")} & set(left_out)
    assert named == {"chaos", "plans"}
    assert named <= set(legs.group(1).split())
