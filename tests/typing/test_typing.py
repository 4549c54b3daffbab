"""Both type checkers accept the right uses of the public names and notice every wrong one."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "tests" / "typing" / "api.py"
IGNORE = re.compile(r"\s*# (?:type|pyright): ignore.*")
COMMANDS = {
    "mypy": ["mypy"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}

with_each_checker = pytest.mark.parametrize("checker", COMMANDS)


def check(checker: str, path: Path) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed (make dev)")
    command = [sys.executable, "-m", *COMMANDS[checker], str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def lines_with_errors(output: str) -> set[int]:
    return {int(line) for line in re.findall(r"api\.py:(\d+):.*\berror\b", output)}


@with_each_checker
def test_the_right_uses_pass_and_no_ignore_is_needless(checker: str) -> None:
    found = check(checker, API)
    # What is wrong inside the package is told by make types, and is no user's business.
    assert found.returncode in {0, 1}, found.stdout + found.stderr
    assert not lines_with_errors(found.stdout), found.stdout


@with_each_checker
def test_every_wrong_use_is_noticed_once_nothing_hides_it(checker: str, tmp_path: Path) -> None:
    lines = API.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if IGNORE.search(line)}
    bared = tmp_path / "api.py"
    bared.write_text("\n".join(IGNORE.sub("", line) for line in lines), encoding="utf-8")
    found = check(checker, bared)
    assert lines_with_errors(found.stdout) == wrong, found.stdout + found.stderr
