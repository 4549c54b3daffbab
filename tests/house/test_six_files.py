"""One job's path is in six files, and the page that says so is right about them."""

import re
import sys
from pathlib import Path

import pytest

from django_jobs.worker import process_once
from testproject.shop.jobs import flaky

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "life-of-a-job.md"
SIX = [
    "django_jobs/definition.py",
    "django_jobs/enqueue.py",
    "django_jobs/wire/envelope.py",
    "django_jobs/worker/cycle.py",
    "django_jobs/execution/attempt.py",
    "django_jobs/worker/settle.py",
]
READ_IN_ONE_SITTING = 1700
ABOUT = 30


def listed():
    """(path, lines) of the page's table, in its order."""
    rows = re.findall(
        r"^\| \d \| `([\w/.]+)` \|.*\| (\d+) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    return [(path, int(lines)) for path, lines in rows]


def lines_of(path):
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def test_the_page_lists_the_six_files_in_their_order():
    assert [path for path, _ in listed()] == SIX


@pytest.mark.parametrize("path", SIX)
def test_the_page_knows_how_long_a_file_is(path):
    assert abs(lines_of(path) - dict(listed())[path]) <= ABOUT


def test_the_six_files_can_be_read_in_one_sitting():
    assert sum(map(lines_of, SIX)) <= READ_IN_ONE_SITTING


@pytest.mark.django_db
def test_a_job_comes_through_the_six_files_in_this_order():
    seen = {}

    def note(frame, event, _argument):
        if event == "call":
            seen.setdefault(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        flaky.using(name="six files").enqueue()
        report = process_once("default")
    finally:
        sys.setprofile(before)
    assert report.status == "requeued"
    assert [path for path in map(inside, seen) if path in SIX] == SIX


def inside(path):
    return str(Path(path).relative_to(ROOT)) if Path(path).is_relative_to(ROOT) else path
