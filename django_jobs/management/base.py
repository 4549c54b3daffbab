"""What the commands have in common: help with examples, exit codes, errors in one sentence."""

from __future__ import annotations

import os
import sys
import textwrap
from argparse import RawDescriptionHelpFormatter
from typing import TYPE_CHECKING, Any

from django.core.management.base import (
    BaseCommand,
    CommandError,
    DjangoHelpFormatter,
    SystemCheckError,
)
from django.db import DatabaseError, Error

from django_jobs.checks import TAG
from django_jobs.conf import get_settings
from django_jobs.db.home import jobs_database
from django_jobs.db.transactions import is_schema_missing
from django_jobs.exceptions import (
    BackendUnavailable,
    ConfigurationError,
    EnqueueOutcomeUnknown,
    InvalidJob,
    StoreUnavailable,
    TablesMissing,
)
from django_jobs.management.output import Output, escaped
from django_jobs.management.schema import require_tables
from django_jobs.routers import job_databases

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import CommandParser

FAILED = 1
USAGE = 2
HELP_WIDTH = 80


class HelpFormatter(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Django's order of options; examples stay as they were written."""


class JobsCommand(BaseCommand):
    """Parses, calls ``run`` and ends with the code that it returns."""

    # Checks of models ask the database, on SQLite even for its write lock; a probe must not.
    requires_system_checks = (TAG,)
    examples = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", HelpFormatter)
        kwargs.setdefault("epilog", epilog(self.examples))
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.description = textwrap.fill(self.help, HELP_WIDTH)
        return parser

    def handle(self, *_args: Any, **options: Any) -> None:
        output = Output(self.stdout, colour=not options.get("no_color"))
        try:
            code = self.run(output, options)
            output.flush()
        except (ConfigurationError, InvalidJob) as error:
            raise refused(str(error)) from error
        except (EnqueueOutcomeUnknown, StoreUnavailable, BackendUnavailable) as error:
            raise CommandError(escaped(str(error)), returncode=FAILED) from error
        except DatabaseError as error:
            raise CommandError(escaped(_refusal(error)), returncode=FAILED) from error
        except BrokenPipeError:
            # Whoever read our output has seen enough; Python would complain at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(FAILED)
        if code:
            sys.exit(code)

    def check(self, *args: Any, **kwargs: Any) -> None:
        """As Django's; a configuration that is wrong is wrong usage, whoever finds it."""
        try:
            super().check(*args, **kwargs)
        except SystemCheckError as error:
            error.returncode = USAGE
            raise

    def run(self, output: Output, options: dict[str, Any]) -> int:
        """Do it; 0 for done, 1 for failed."""
        raise NotImplementedError


def _refusal(error: DatabaseError) -> str:
    """What a database said; where our tables are missing, what to run."""
    if is_schema_missing(error):
        for alias in job_databases(get_settings()):
            try:
                require_tables(alias)
            except TablesMissing as missing:
                return str(missing)
            except Error:
                continue
    told = str(error).strip()
    if isinstance(error, TablesMissing):
        return told
    return f"the database refused: {told}; is it up, and has migrate been run?"


def epilog(examples: str) -> str:
    """Examples as they end a help text."""
    lines = [f"  manage.py {line.strip()}" for line in examples.strip().splitlines()]
    return "\n".join(["examples:", *lines, "", "exit codes: 0 done, 1 failed, 2 wrong usage"])


def refused(text: str) -> CommandError:
    """What was asked makes no sense: exit code 2."""
    return CommandError(escaped(text, keep_lines=True), returncode=USAGE)


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")


def add_database(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        metavar="ALIAS",
        help="which of the databases with job tables; default: that of DEFAULT_BACKEND",
    )


def chosen_database(alias: str | None) -> str:
    """The database alias of ``--database``; refuses one without job tables."""
    known = job_databases(get_settings())
    if alias is not None and alias not in known:
        raise refused(f"--database {alias!r} holds no jobs; use {' or '.join(known)}")
    return alias or jobs_database()
