"""What ``from django_jobs import …`` offers is exactly what ``__all__`` says, and so elsewhere."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import django_jobs
from django_jobs import exceptions

ROOT = Path(__file__).resolve().parents[2]
EXCEPTIONS_PAGE = ROOT / "docs" / "reference" / "exceptions.md"
PROMISED = {"Cancel", "Retry", "Snooze", "define", "enqueue_many", "job"}


def public_names(module):
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "annotations" and not isinstance(value, ModuleType)
    }


def test_all_names_everything_that_is_public_and_nothing_else():
    assert set(django_jobs.__all__) == public_names(django_jobs)


def test_all_is_sorted_and_names_nothing_twice():
    for module in (django_jobs, exceptions):
        assert list(module.__all__) == sorted(set(module.__all__))


def test_the_names_that_are_promises_are_there():
    assert set(django_jobs.__all__) >= PROMISED


@pytest.mark.parametrize("name", django_jobs.__all__)
def test_every_public_name_says_what_it_is(name):
    assert inspect.getdoc(getattr(django_jobs, name))


def test_all_exceptions_are_public():
    own = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and value.__module__ == exceptions.__name__
    }
    assert set(exceptions.__all__) == own


def test_the_tree_in_the_docstring_shows_every_exception():
    tree = exceptions.__doc__.split("\n\n")[1]
    assert set(re.findall(r"^[ │├└─]*([A-Z]\w+)", tree, re.MULTILINE)) == set(exceptions.__all__)


@pytest.mark.parametrize("name", exceptions.__all__)
def test_every_exception_is_a_jobs_error(name):
    assert issubclass(getattr(exceptions, name), exceptions.JobsError)


@pytest.mark.parametrize("name", exceptions.__all__)
def test_the_page_of_exceptions_says_when_each_is_raised_and_what_to_do(name):
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in EXCEPTIONS_PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{name}` |")
    ]
    assert len(rows) == 1
    assert len(rows[0]) == 4
    assert all(rows[0])


def test_the_package_is_typed():
    assert (ROOT / "django_jobs" / "py.typed").exists()


def test_importing_the_package_needs_no_settings():
    code = "import django_jobs; print(django_jobs.__version__)"
    environment = {"PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == django_jobs.__version__
