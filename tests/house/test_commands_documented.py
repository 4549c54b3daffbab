"""The commands page lists every command with every option, and the parsers know no others."""

import argparse
import re
from pathlib import Path

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/commands.md"
COMMANDS = sorted(
    path.stem for path in (ROOT / "django_jobs/management/commands").glob("jobs_*.py")
)


def options_in(parser):
    """What a parser takes: the names of its options, the metavars of its arguments."""
    found = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                found |= {name: ""} | options_in(subparser)
        elif action.option_strings:
            found[action.option_strings[-1]] = action.help
        else:
            found[action.metavar] = action.help
    return found


def own_options(name):
    """Those that Django does not give to every command."""
    everywhere = options_in(BaseCommand().create_parser("manage.py", name))
    own = options_in(load_command_class("django_jobs", name).create_parser("manage.py", name))
    return {option for option, told in own.items() if everywhere.get(option) != told}


def section(name):
    found = re.search(
        rf"^## `{name}`\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found, f"docs/reference/commands.md has no section `{name}`"
    return found.group(1)


def listed(text):
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {
        re.split(r"[\s=]", word)[0] for cell in cells for word in re.findall(r"`([^`]+)`", cell)
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_lists_exactly_the_options(name):
    assert listed(section(name)) == own_options(name)


def test_the_page_has_no_other_command():
    sections = re.findall(r"^## `(jobs_\w+)`$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(sections) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_something_about_every_option(name, capsys):
    parser = load_command_class("django_jobs", name).create_parser("manage.py", name)
    assert parser.description
    for option, told in options_in(parser).items():
        assert told or option in {"list", "show", "replay", "discard"}, option
    parser.print_help()
    assert name in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "jobs_work"])
def test_help_shows_examples_and_exit_codes(name):
    told = load_command_class("django_jobs", name).create_parser("manage.py", name).format_help()
    assert f"  manage.py {name}" in told
    assert "exit codes: 0 done, 1 failed, 2 wrong usage" in told
