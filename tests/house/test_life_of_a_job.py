"""The pages of a job's life and of the pool name what a job goes through, and nothing else."""

import re

import pytest

from tests.house.findings import listed
from tests.house.life_of_a_job import (
    LIFE,
    PACKAGE,
    POOL,
    ROOT,
    between,
    entered_in_the_pool,
    functions_named_in,
    lines_in,
    listed_in,
    path_of_a_job,
    small_site,
    stated_lines,
)

RENEW = "run 'make house-pages'"
READ_FIRST = re.compile(rf"^\| \d \| `({PACKAGE}/[\w/.]+)` \|", re.MULTILINE)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A job from its enqueue to success, to a retry, and to a dead letter."""
    return path_of_a_job(small_site(str(tmp_path_factory.mktemp("site"))))


def test_the_page_names_every_file_that_a_job_goes_through(path):
    missing = path.files - set(listed_in(between(LIFE, "path")))
    assert not missing, f"{RENEW}: the page lacks{listed(sorted(missing))}"


def test_the_page_names_no_file_that_no_job_goes_through(path):
    more = set(listed_in(between(LIFE, "path"))) - path.files
    assert not more, f"{RENEW}: no job goes through{listed(sorted(more))}"


def test_the_page_names_no_file_twice():
    files = listed_in(between(LIFE, "path"))
    assert len(files) == len(set(files)), RENEW


def test_the_page_knows_about_how_many_lines_that_is(path):
    lines = lines_in(path.files)
    stated = stated_lines(between(LIFE, "path"))
    assert abs(stated - lines) <= lines / 10, f"{RENEW}: it is {lines} lines"


def test_what_is_to_be_read_first_is_on_the_way(path):
    first = READ_FIRST.findall(LIFE.read_text("utf-8"))
    aside = [file for file in first if file not in path.files]
    assert first
    assert not aside, listed(aside)
    assert all((ROOT / file).exists() for file in first)


def test_a_job_in_the_pool_goes_through_the_functions_that_the_page_names(tmp_path):
    legs = re.search(
        r"^## The six legs.*?(?=^## )", POOL.read_text("utf-8"), re.MULTILINE | re.DOTALL
    ).group()
    named = functions_named_in(legs)
    entered = {(file, name) for _, file, name in entered_in_the_pool(small_site(str(tmp_path)))}
    aside = [f"{file} {name}" for file, name in named if (file, name) not in entered]
    assert len(named) > 40
    assert not aside, listed(aside)
