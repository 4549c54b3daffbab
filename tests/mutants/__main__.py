"""python -m tests.mutants [PART OF A MODULE'S NAME …]: run the mutants, explain the survivors.

Each mutant is run in a fork of a process that has imported all but django_jobs, against the
tests of its module. Where a module is tried on several databases, for its statements differ,
whoever survives on one is tried on the next. Whoever survives has to be in survivors.toml with
a reason, and whoever is there has to survive: anything else is a failure.

After them come the changes of chosen.toml, each with the test that has to fail.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import tomllib
import warnings
from pathlib import Path

import django
import hypothesis
import hypothesis.strategies

from tests import services
from tests.mutants import chosen
from tests.mutants.changing import mutants_of
from tests.mutants.running import PLUGINS, Bench
from tests.mutants.tested import DATABASES, TESTS

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = Path(__file__).with_name("survivors.toml")
# Imported once, before the forks; django_jobs must not be among what these bring along.
HEAVY = """
    asyncio concurrent.futures cryptography.x509 django.db.models django.forms django.template
    django.test django.test.client django.test.utils django.utils.module_loading email.message
    http.client hypothesis.strategies pytest ssl sqlite3
"""


def main(parts):
    prepare()
    paths = [path for path in TESTS if is_asked_for(path, parts)]
    explained = tomllib.loads(EXPLAINED.read_text("utf-8")) if EXPLAINED.exists() else {}
    began, total, left, problems = time.monotonic(), 0, 0, 0
    for path in paths:
        file = ROOT / "django_jobs" / path
        mutants = found = list(mutants_of(file.read_text("utf-8"), str(file)))
        told = []
        for database in DATABASES.get(path, (None,)):
            if database in services.PROBES and (why := services.why_not(database)):
                print(f"NOT RUN on {database}, so more of {path} survive: {why}", flush=True)
                continue
            bench = Bench(file, TESTS[path], database)
            try:
                if failed := bench.failure_without_mutant():
                    return f"{path}: its tests fail without a mutant:\n{failed}"
                found = bench.survivors(found)
            finally:
                bench.clear()
            told.append(f"{len(found)} survive{'' if database is None else ' ' + database}")
        print(f"{path}: {len(mutants)} mutants, {', '.join(told)}", flush=True)
        wrong = verdict(found, explained.get(path, []))
        print("".join(f"    {problem}\n" for problem in wrong), end="", flush=True)
        total, left, problems = total + len(mutants), left + len(found), problems + len(wrong)
    by_hand = [one for one in chosen.changes() if is_asked_for(one.file, parts)]
    unnoticed = chosen.problems(by_hand)
    print(f"{len(by_hand)} chosen changes, {len(unnoticed)} not as {chosen.LISTED.name} says")
    print("".join(f"    {problem}\n" for problem in unnoticed), end="")
    print(f"{total} mutants, {left} survive, in {time.monotonic() - began:.0f} s", flush=True)
    if problems or unnoticed:
        return (
            f"{problems + len(unnoticed)} are not as {EXPLAINED.name} and {chosen.LISTED.name} say"
        )
    return 0


def is_asked_for(path, parts):
    return not parts or any(part in path for part in parts)


def prepare():
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.mutants.settings"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Always the same examples, and none that fails because the machine is busy.
    hypothesis.settings.register_profile(
        "mutants",
        database=None,
        deadline=None,
        derandomize=True,
        max_examples=30,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    for name in HEAVY.split():
        importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this comes before the tests is what it is for
        take_texts()
    for name in PLUGINS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    django.setup()
    if any(name.startswith("django_jobs") for name in sys.modules):
        raise RuntimeError("django_jobs was imported too early to be changed")


@hypothesis.given(hypothesis.strategies.text())
def take_texts(_text):
    """Has the tables of all characters made, once for all forks."""


def verdict(found, entries):
    """Who survives without an explanation, and who is explained and does not survive."""
    known, names = {entry["mutant"] for entry in entries}, {mutant.name for mutant in found}
    new = [f"line {one.line} survives: {one.name}" for one in found if one.name not in known]
    return new + [f"does not survive (any more): {name}" for name in sorted(known - names)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
