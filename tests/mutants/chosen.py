"""Changes that were chosen by hand, each with the test that has to fail with it.

They reach what is not changed as a whole: scripts in Lua, and single promises of other modules.
Each is made in a copy of the project, in which a process of its own runs the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LISTED = Path(__file__).with_name("chosen.toml")
COPIED = ("django_jobs", "testproject", "tests")
OPTIONS = ["-x", "-q", "-m", "", "-p", "no:cacheprovider", "-p", "no:randomly"]
FAILED = 1  # what pytest exits with when tests ran and one did not pass


class Change(NamedTuple):
    breaks: str
    file: str
    before: str
    after: str
    test: str


def changes():
    return [Change(**one) for one in tomllib.loads(LISTED.read_text("utf-8"))["change"]]


def problems(chosen):
    """What is wrong with some of them: tests that fail anyway, and changes that none noticed."""
    if not chosen:
        return []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copy(ROOT / "pyproject.toml", copy)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        status, said = run(copy, sorted({one.test for one in chosen}))
        if status:
            return [f"the tests of chosen changes fail without one:\n{said}"]
        return [problem for one in chosen if (problem := problem_of(one, copy))]


def problem_of(change, copy):
    file = copy / "django_jobs" / change.file
    text = file.read_text("utf-8")
    if text.count(change.before) != 1:
        return f"{change.file} does not have this text once: {change.before}"
    file.write_text(text.replace(change.before, change.after), "utf-8")
    try:
        status, said = run(copy, [change.test])
    finally:
        file.write_text(text, "utf-8")
    if status == 0:
        return f"survives: no longer is it so that {change.breaks} ({change.file})"
    return "" if status == FAILED else f"{change.test} could not be run:\n{said}"


def run(copy, tests):
    environment = {**os.environ, "DJANGO_JOBS_TEST_REQUIRE": "all"}
    environment["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
    environment["DJANGO_JOBS_TEST_SUFFIX"] = f"chosen_{os.getpid()}"
    environment.pop("PYTEST_DISABLE_PLUGIN_AUTOLOAD", None)
    # What was compiled of the text before must not stand for the new one of the same second.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *tests],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout[-4000:] + done.stderr[-2000:]
