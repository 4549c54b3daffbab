"""The commands page lists every command with every option, and the parsers know no others."""

import argparse
import re
from pathlib import Path

from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from tests.house.findings import listed

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
    own = options_in(parser_of(name))
    return {option for option, told in own.items() if everywhere.get(option) != told}


def section(name):
    found = re.search(
        rf"^## `{name}`\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found, f"docs/reference/commands.md has no section `{name}`"
    return found.group(1)


def options_of(text):
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {
        re.split(r"[\s=]", word)[0] for cell in cells for word in re.findall(r"`([^`]+)`", cell)
    }


def parser_of(name):
    return load_command_class("django_jobs", name).create_parser("manage.py", name)


def test_the_page_lists_exactly_the_options():
    wrong = []
    for name in COMMANDS:
        own, documented = own_options(name), options_of(section(name))
        wrong += [f"{name}: the page lacks {option}" for option in sorted(own - documented)]
        wrong += [f"{name}: there is no {option}" for option in sorted(documented - own)]
    assert not wrong, listed(wrong)


def test_the_page_has_no_other_command():
    sections = re.findall(r"^## `(jobs_\w+)`$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(sections) == COMMANDS


def test_help_says_something_about_every_option(capsys):
    silent = []
    for name in COMMANDS:
        parser = parser_of(name)
        silent += [] if parser.description else [name]
        silent += [
            f"{name} {option}"
            for option, text in options_in(parser).items()
            if not text and option not in {"list", "show", "replay", "discard"}
        ]
        parser.print_help()
        silent += [] if name in capsys.readouterr().out else [f"{name} --help"]
    assert not silent, listed(silent)


def test_help_shows_examples_and_exit_codes():
    silent = []
    for name in COMMANDS:
        text = parser_of(name).format_help()
        codes = "exit codes: 0 done, 1 failed, 2 wrong usage"
        if name != "jobs_work" and not (f"  manage.py {name}" in text and codes in text):
            silent.append(name)
    assert not silent, listed(silent)
