"""Checks that look at files and at the system."""

import pytest

from django_jobs.checks import reach
from django_jobs.conf import read


def found(**jobs):
    parsed, problems = read(jobs, secret_key="x" * 40)
    assert problems == []
    return [
        (message.id.removeprefix("django_jobs."), message.msg)
        for check in reach.REACH_CHECKS
        for message in check(parsed, problems)
    ]


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "dump"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_program_that_only_its_owner_can_change_is_fine(program):
    assert found(ALLOWED_SHELL_COMMANDS=[str(program)]) == []


@pytest.mark.parametrize("what", ["the file", "its directory"])
def test_a_program_that_everybody_can_change_is_told_with_the_place(program, what):
    place = program if what == "the file" else program.parent
    place.chmod(place.stat().st_mode | 0o002)
    ((check, told),) = found(ALLOWED_SHELL_COMMANDS=[str(program)])
    assert check == "W023"
    assert repr(str(place)) in told
    place.chmod(place.stat().st_mode & ~0o002)
    assert found(ALLOWED_SHELL_COMMANDS=[str(program)]) == []


def test_a_link_is_followed_before_its_name_is_judged(program):
    link = program.with_name("innocent")
    link.symlink_to("/usr/bin/env")
    assert [check for check, _ in found(ALLOWED_SHELL_COMMANDS=[str(link)])] == ["W022"]


@pytest.mark.parametrize(
    "name", ["sh", "bash", "zsh", "python3.13", "python", "perl", "xargs", "find", "gawk", "sudo"]
)
def test_programs_that_run_others_are_known(name):
    assert reach.RUNS_OTHERS.fullmatch(name)
    assert not reach.RUNS_OTHERS.fullmatch(f"{name}-report")


def test_a_program_held_to_certain_arguments_may_be_any():
    assert found(ALLOWED_SHELL_COMMANDS={"/usr/bin/env": [[]]}) == []
    assert found(ALLOWED_COMMANDS={"flush": [["--no-input"]]}) == []


def test_on_another_system_programs_are_an_error(monkeypatch):
    monkeypatch.setattr(reach, "ON_POSIX", False)
    assert [check for check, _ in found(ALLOWED_SHELL_COMMANDS=["/usr/bin/date"])] == ["E021"]
    assert found(ALLOWED_COMMANDS=["clearsessions"]) == []


def test_an_event_that_cannot_be_imported_says_why():
    ((check, told),) = found(ALLOWED_EVENTS={"paid": "no.such.signal"})
    assert (check, "No module named 'no'" in told) == ("E020", True)
    assert found(ALLOWED_EVENTS=["django.core.signals.request_started"]) == []
