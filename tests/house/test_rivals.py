"""The rivals' benchmark: what it would take for granted in the middle of a run."""

import re
from pathlib import Path

import pytest

from tests.benchmarks import tasks
from tests.benchmarks.rivals.contestants import ADAPTERS, BARE, OURS, TASKS, site
from tests.benchmarks.rivals.marks import RECORD, Marks
from tests.benchmarks.rivals.site import DEFAULTS, MACHINE, ONE
from tests.house.findings import listed

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "tests/benchmarks/rivals/requirements.txt"


def test_an_adapter_is_read_without_its_package():
    wrong = []
    for name in dict.fromkeys([*ADAPTERS, *TASKS]):
        rival = site(name)
        wrong += [] if rival.keeps else [f"{name} does not say what it keeps"]
        reads = rival.left.startswith(("SELECT ", "return redis.call("))
        wrong += [] if reads else [f"{name} asks for what is left by {rival.left}"]
        ways = {way.name for way in rival.ways} & {DEFAULTS, ONE, MACHINE}
        wrong += [] if ways else [f"{name} has no way"]
        sound = all(way.workers and way.pace > 0 for way in rival.ways)
        wrong += [] if sound else [f"{name} has a way without workers or pace"]
    assert not wrong, listed(wrong)


def test_a_rival_is_measured_in_all_three_ways_and_pinned():
    wrong, pinned = [], PINNED.read_text("utf-8")
    for name in [name for name in ADAPTERS if not name.endswith((BARE, OURS))]:
        rival = site(name)
        if [way.name for way in rival.ways] != [DEFAULTS, ONE, MACHINE]:
            wrong.append(f"{name} is not measured in all three ways")
        if not re.search(rf"^{rival.distribution}==\d", pinned, re.MULTILINE):
            wrong.append(f"{rival.distribution} is not pinned")
    assert not wrong, listed(wrong)


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


def test_a_backend_of_tasks_says_where_its_results_are():
    models = {name: site(name).model.partition(".") for name in TASKS}
    wrong = [name for name, (app, _, model) in models.items() if not (app and model)]
    assert not wrong, listed(wrong)


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
