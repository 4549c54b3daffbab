"""What the mutants and the guarded modules name by text is there, so that no name goes stale."""

import re
import tomllib
from functools import cache

from tests.guarded import __main__ as guarded
from tests.house.findings import listed
from tests.mutants import tested
from tests.mutants.__main__ import EXPLAINED, ROOT
from tests.mutants.changing import mutants_of

CODE = ROOT / "django_jobs"
SUITES = CODE / "testing" / "conformance"


def stale(explained):
    """The explained mutants that are not made, as their code is gone or reads differently."""
    for path, entries in explained.items():
        names = [entry["mutant"] for entry in entries]
        source = (CODE / path).read_text("utf-8") if path in tested.TESTS else ""
        made = {mutant.name for mutant in mutants_of(source, path, names)}
        yield from (f"{path}: {name}" for name in names if name not in made)


@cache
def names_of_tests(path):
    """The names of the tests in a file and, as it may inherit them, of the conformance suite."""
    texts = [file.read_text("utf-8") for file in (ROOT / path, *SUITES.glob("*.py"))]
    return {
        name for text in texts for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)
    }


def is_there(test):
    path, *names = test.split("::")
    if not (ROOT / path).exists():
        return False
    return all(name in names_of_tests(path) for name in names if name.startswith("test_"))


def test_every_explained_survivor_is_a_change_that_is_made():
    found = list(stale(tomllib.loads(EXPLAINED.read_text("utf-8"))))
    assert not found, listed(found)


def test_a_survivor_whose_code_is_gone_is_stale():
    some = {
        "wire/signing.py": [
            {"mutant": "_decoded: b'' → b'X' (2)"},
            {"mutant": "_decoded: b'' → b'X' (9)"},
            {"mutant": "_gone: 1 → 2"},
        ],
        "wire/gone.py": [{"mutant": "module: 1 → 2"}],
    }
    assert list(stale(some)) == [
        "wire/signing.py: _decoded: b'' → b'X' (9)",
        "wire/signing.py: _gone: 1 → 2",
        "wire/gone.py: module: 1 → 2",
    ]


def test_no_survivor_is_explained_twice():
    explained = tomllib.loads(EXPLAINED.read_text("utf-8"))
    every = [(path, entry["mutant"]) for path, entries in explained.items() for entry in entries]
    twice = sorted({pair for pair in every if every.count(pair) > 1})
    assert not twice, listed(twice)


def test_the_modules_that_are_changed_and_guarded_exist():
    missing = [path for path in tested.TESTS if not (CODE / path).is_file()]
    missing += [path for path in tested.DATABASES if path not in tested.TESTS]
    missing += [pattern for pattern in guarded.GUARDED if not list(CODE.glob(pattern))]
    assert not missing, listed(missing)


def test_the_tests_that_have_to_notice_exist():
    named = {test for some in (tested, guarded) for tests in some.TESTS.values() for test in tests}
    named = {test.removeprefix("--ignore=") for test in named}
    missing = sorted(test for test in named if not is_there(test))
    assert not missing, listed(missing)
