"""The rivals' benchmark: what it would take for granted in the middle of a run."""

import re
from pathlib import Path

import pytest

from tests.benchmarks import tasks
from tests.benchmarks.rivals.contestants import ADAPTERS, BARE, OURS, TASKS, site
from tests.benchmarks.rivals.marks import RECORD, Marks
from tests.benchmarks.rivals.site import DEFAULTS, MACHINE, ONE

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "tests/benchmarks/rivals/requirements.txt"


@pytest.mark.parametrize("name", dict.fromkeys([*ADAPTERS, *TASKS]))
def test_an_adapter_is_read_without_its_package(name):
    found = site(name)
    assert found.keeps
    assert found.left.startswith(("SELECT ", "return redis.call("))
    assert {way.name for way in found.ways} & {DEFAULTS, ONE, MACHINE}
    assert all(way.workers and way.pace > 0 for way in found.ways)


@pytest.mark.parametrize("name", [name for name in ADAPTERS if not name.endswith((BARE, OURS))])
def test_a_rival_is_measured_in_all_three_ways_and_pinned(name):
    found = site(name)
    assert [way.name for way in found.ways] == [DEFAULTS, ONE, MACHINE]
    assert re.search(rf"^{found.distribution}==\d", PINNED.read_text("utf-8"), re.MULTILINE)


def test_the_page_names_every_contestant():
    page = (ROOT / "docs/reference/benchmarks.md").read_text("utf-8")
    assert re.findall(r"^\| `([\w:-]+)` \| (?:PostgreSQL|SQLite|Redis)", page, re.MULTILINE) == [
        *ADAPTERS
    ]


@pytest.mark.parametrize(
    ("ran", "complaint"),
    [
        ([0, 1, 2], ""),
        ([2, 0, 1], ""),
        ([0, 2], "1 of 3 jobs never ran, such as 1"),
        ([0, 1, 2, 1], "1 of 3 jobs ran more than once, such as 1"),
        ([0, 1, 2, 3], "1 of 3 jobs nobody enqueued, such as 3"),
    ],
)
def test_a_job_that_did_not_run_exactly_once_is_noticed(tmp_path, ran, complaint):
    marks = Marks(tmp_path / "marks")
    marks.path.write_bytes(b"".join(RECORD.pack(n, moment) for moment, n in enumerate(ran)))
    assert marks.complaint(3) == complaint
    assert marks.count() == len(ran)


@pytest.mark.parametrize("name", TASKS)
def test_a_backend_of_tasks_says_where_its_results_are(name):
    app, _, model = site(name).model.partition(".")
    assert app
    assert model


def test_ours_is_compared_with_the_fastest_of_the_same_turn_only():
    ours, ox, other = TASKS
    turns = [
        {ours: 10.0, ox: 5.0, other: 2.0},
        {ours: 30.0, ox: 2.0, other: 10.0},
        {ours: 9.0, ox: 1.0},
        {ours: 1.0},
        {ox: 1.0, other: 2.0},
    ]
    assert tasks.median_ratio(turns) == 3.0
    assert tasks.median_ratio([]) == 0.0
