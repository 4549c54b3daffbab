"""What ``from django_jobs import …`` offers is exactly what ``__all__`` says, and so elsewhere."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import django_jobs
from django_jobs import exceptions
from tests.house.findings import listed

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


def test_every_public_name_says_what_it_is():
    silent = [
        name for name in django_jobs.__all__ if not inspect.getdoc(getattr(django_jobs, name))
    ]
    assert not silent, listed(silent)


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


def test_every_exception_is_a_jobs_error():
    strangers = [
        name
        for name in exceptions.__all__
        if not issubclass(getattr(exceptions, name), exceptions.JobsError)
    ]
    assert not strangers, listed(strangers)


def test_the_page_of_exceptions_says_when_each_is_raised_and_what_to_do():
    lines = EXCEPTIONS_PAGE.read_text(encoding="utf-8").splitlines()
    wanting = []
    for name in exceptions.__all__:
        rows = [line for line in lines if line.startswith(f"| `{name}` |")]
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
        if not (len(cells) == 1 and len(cells[0]) == 4 and all(cells[0])):
            wanting.append(f"{name}: {rows}")
    assert not wanting, listed(wanting)


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
