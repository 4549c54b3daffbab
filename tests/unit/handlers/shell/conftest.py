"""Programs of the tests, and the handler that may start them."""

import sys

import pytest

from django_jobs.handlers.shell.handler import ShellHandler
from tests.unit.handlers.attempts import attempt


@pytest.fixture
def script(tmp_path):
    """Writes a program in Python; the path of its file."""

    def script(text, name="program"):
        path = tmp_path / name
        path.write_text(f"#!{sys.executable} -ISB\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return script


@pytest.fixture
def run(settings):
    """Runs a program that is allowed; the outcome."""

    def run(*words, timeout=None, allowed=None, **surroundings):
        settings.DJANGO_JOBS = {
            "ALLOWED_SHELL_COMMANDS": allowed or [words[0]],
            "SHELL": surroundings,
            "KILL_GRACE": 1,
        }
        return attempt(ShellHandler(), list(words), timeout)

    return run
