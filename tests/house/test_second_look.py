"""A test that failed among CI's legs is run again alone, within limits.

Each case is a suite of its own: run once as a leg of ``.ci/run`` is, then looked at again.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / ".ci/second_look.py"
SPEC = importlib.util.spec_from_file_location("second_look", PATH)
second_look = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(second_look)

PYTEST = [sys.executable, "-m", "pytest", "-q"]
FLAKY = """
from pathlib import Path

import pytest


def first_time(name):
    seen = Path(f"{name}.seen")
    first = not seen.exists()
    seen.touch()
    return first


def test_sound():
    pass


"""
ONCE = """
def test_{0}():
    assert not first_time("{0}")
"""
TWICE = """
def test_twice():
    raise AssertionError("this is why")
"""
IN_CALL_AND_TEARDOWN = """
@pytest.fixture
def lingering():
    first = first_time("lingering")
    yield first
    assert not first

def test_lingering(lingering):
    assert not lingering
"""
SKIPPED_THEN = """
def test_skipped_then():
    if first_time("skipped"):
        raise AssertionError
    pytest.skip("the second time")
"""
STRANGE = ["a [b]::c", "new\nline", "$HOME '\"` ü"]
NAMED_STRANGELY = f"""
NAMES = {STRANGE!r}

@pytest.mark.parametrize("name", NAMES)
def test_named(name):
    assert not first_time(NAMES.index(name))
"""


class Run:
    """A run of CI: what its legs left behind, and the names that passed only in quiet before."""

    def __init__(self, folder):
        self.folder, self.out, self.listed = folder, folder / "out", folder / "only-in-quiet"
        self.out.mkdir()
        self.listed.write_text("# listed before\n")
        (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")

    def leg(self, name, *tests, folder="tests/unit"):
        path = f"{folder}/test_{name[0]}.py"
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FLAKY + "\n".join(tests))
        out = self.out
        kept = ["-o", f"cache_dir={out}/{name}.cache", "--junitxml", f"{out}/{name}.xml"]
        done = subprocess.run([*PYTEST, *kept, path], capture_output=True, check=False)
        assert done.returncode == 1, done.stdout
        (out / f"{name}.failed").touch()
        (out / f"{name}.again").write_text("\n".join([*PYTEST, "-p", "no:cacheprovider"]) + "\n")

    def passes(self):
        return second_look.main(self.out, self.listed) == 0

    @property
    def failed(self):
        return sorted(path.stem for path in self.out.glob("*.failed"))

    @property
    def looked_at(self):
        return sorted(path.stem for path in self.out.glob("*.again-*.log"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return Run(tmp_path)


def test_what_passes_alone_passes_and_is_named(run, capsys):
    run.leg("a-3.13-6.1", ONCE.format("once"))
    assert run.passes()
    assert not run.failed
    name = "a-3.13-6.1 tests/unit/test_a.py::test_once"
    assert capsys.readouterr().out == f"PASSED ONLY IN QUIET: {name}\n"
    assert "1 passed" in (run.out / "a-3.13-6.1.again-1.log").read_text()


def test_a_test_is_found_again_whatever_its_parameters(run, capsys):
    run.leg("a", NAMED_STRANGELY)
    assert run.passes()
    assert capsys.readouterr().out.count("PASSED ONLY IN QUIET: a ") == len(STRANGE)


def test_a_test_that_failed_in_its_teardown_too_is_one(run):
    run.leg("a", IN_CALL_AND_TEARDOWN)
    assert run.passes()
    assert run.looked_at == ["a.again-1"]


def test_what_fails_twice_fails_and_its_leg_alone(run, capsys):
    run.leg("a", TWICE, ONCE.format("once"))
    run.leg("b", ONCE.format("other"))
    assert not run.passes()
    assert run.failed == ["a"]
    said = capsys.readouterr().out
    assert "FAILED TWICE: a tests/unit/test_a.py::test_twice\n" in said
    assert "AssertionError: this is why" in said
    assert "PASSED ONLY IN QUIET: b tests/unit/test_b.py::test_other\n" in said


def test_what_is_skipped_the_second_time_has_not_passed(run):
    run.leg("a", SKIPPED_THEN)
    assert not run.passes()
    assert run.failed == ["a"]


def test_three_of_all_legs_may_pass_only_in_quiet(run):
    run.leg("a", ONCE.format("one"), ONCE.format("two"))
    run.leg("b", ONCE.format("three"))
    assert run.passes()
    assert run.looked_at == ["a.again-1", "a.again-2", "b.again-1"]


def refused(run, capsys, reason):
    """It fails, for that reason, and nothing was run again."""
    assert not run.passes()
    assert run.failed
    assert not run.looked_at
    assert f"NO SECOND LOOK: {reason}" in capsys.readouterr().out.splitlines()
    return True


def test_four_are_too_many(run, capsys):
    run.leg("a", ONCE.format("one"), ONCE.format("two"))
    run.leg("b", ONCE.format("three"), ONCE.format("four"))
    assert refused(run, capsys, "4 tests failed, and at most 3 get one")


@pytest.mark.parametrize("kind", ["conformance", "simulation", "chaos"])
def test_some_kinds_fail_at_once(run, capsys, kind):
    run.leg("a", ONCE.format("once"), folder=f"tests/{kind}/deeper")
    name = f"a tests/{kind}/deeper/test_a.py::test_once"
    assert refused(run, capsys, f"{name}: such a test has to pass in any crowd")


def test_what_is_listed_fails_at_once_in_its_leg_alone(run, capsys):
    run.leg("a", ONCE.format("once"))
    name = "a tests/unit/test_a.py::test_once"
    run.listed.write_text(f"# listed before\n\n{name}\n")
    assert refused(run, capsys, f"{name}: it passed only in quiet before")
    run.listed.write_text(f"# {name}\nb tests/unit/test_a.py::test_once\n")
    assert run.passes()


def test_a_leg_without_a_test_that_failed_stays_failed(run, capsys):
    run.leg("a", ONCE.format("once"))
    run.leg("b", ONCE.format("other"))
    (run.out / "b.cache/v/cache/lastfailed").unlink()
    assert refused(run, capsys, "b: its report and pytest's cache do not agree on what failed")


def test_what_is_listed_are_names(run):
    assert not second_look.listed_names(run.listed)
    for name in second_look.listed_names(ROOT / ".ci/only-in-quiet"):
        assert "::" in name.partition(" ")[2]


REPORT = '<testsuites><testsuite errors="{}" failures="{}" time="1">{}</testsuite></testsuites>'
CASE = '<testcase classname="a" name="test_b">{}</testcase>'
SKIP = '<skipped type="pytest.skip" message="{}"/>'


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (REPORT.format(0, 0, CASE), 0),
        (REPORT.format(0, 0, CASE.format(SKIP.format("known"))), 0),
        (REPORT.format(0, 1, CASE), 1),
        (REPORT.format(1, 0, CASE), 1),
        (REPORT.format(0, 1, CASE.format(SKIP.format("unheard of"))), 2),
        (REPORT.format(0, 0, ""), 2),
    ],
    ids=["passed", "accepted", "failed", "error", "a skip too", "nothing"],
)
def test_only_failed_tests_give_a_leg_its_second_look(tmp_path, report, status):
    (tmp_path / "report.xml").write_text(report)
    (tmp_path / "allowed").write_text("known$\n")
    counted = [sys.executable, ROOT / ".ci/skips.py", "report.xml", "allowed"]
    assert subprocess.run(counted, cwd=tmp_path, check=False).returncode == status
