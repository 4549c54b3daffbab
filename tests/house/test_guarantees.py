"""The page of guarantees, and its table of faults, promise nothing that no test shows."""

import re
import tomllib
from pathlib import Path

from tests.house.findings import listed

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


def test_a_fault_is_shown_by_a_test():
    unshown = [
        f"{fault}: no test named for {word} in {path}"
        for fault, path, word in rows()
        if not any(word in name for name in names_of_tests(ROOT / path))
    ]
    assert not unshown, listed(unshown)


def names_of_tests(path):
    text = path.read_text("utf-8") if path.exists() else ""
    return re.findall(r"^def (test_\w+)", text, re.MULTILINE)


TEXT = PAGE.read_text("utf-8")
NO_GUARANTEES = {"What happens when", "What is not promised", "What is not here yet"}
PROMISED = {
    title: text
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    if title not in NO_GUARANTEES
}
CITED = sorted(set(re.findall(r"`((?:tests/)?[\w/.]*test_\w+\.py|tests/[\w/]+)`", TEXT)))


def test_a_guarantee_cites_the_tests_that_show_it():
    assert PROMISED
    unshown = []
    for title, text in PROMISED.items():
        shown = text.partition("*Shown:*")[2]
        tests = set(CITED) & set(re.findall(r"`([\w/.]+)`", shown))
        if not ("conformance suite" in shown or tests):
            unshown.append(title)
    assert not unshown, listed(unshown)


def test_a_cited_test_exists():
    assert CITED
    missing = []
    for cited in CITED:
        paths = list((ROOT / "tests").rglob(cited)) if "/" not in cited else [ROOT / cited]
        if not (paths and all(path.exists() for path in paths)):
            missing.append(cited)
    assert not missing, listed(missing)


def test_cited_tests_that_run_only_when_named_are_run_by_ci():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    left_out = settings["tool"]["pytest"]["norecursedirs"]
    script = (ROOT / ".ci/run").read_text("utf-8")
    legs = re.search(r"^LEGS=\(([^)]*)\)$", script, re.MULTILINE)
    named = {one.split("/")[1] for one in CITED if one.startswith("tests/")} & set(left_out)
    assert named == {"chaos", "plans"}
    assert named <= set(legs.group(1).split())
