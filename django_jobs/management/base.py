"""The base class of the commands and their helpers: options, questions, progress, watching."""

from __future__ import annotations

import getpass
import os
import signal
import sys
import textwrap
import threading
import time
from argparse import RawDescriptionHelpFormatter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.management.base import (
    BaseCommand,
    CommandError,
    DjangoHelpFormatter,
    SystemCheckError,
)
from django.db import DatabaseError, Error

from django_jobs.backends.home import jobs_database
from django_jobs.checks import TAG
from django_jobs.conf import get_settings
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
    from collections.abc import Callable, Iterator
    from types import FrameType

    from django.core.management.base import CommandParser, OutputWrapper


FAILED = 1
USAGE = 2
HELP_WIDTH = 80


class HelpFormatter(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Django's order of options; keeps the line breaks of examples."""


class JobsCommand(BaseCommand):
    """Calls ``run``, exits with the code that it returns, and reports errors in one sentence."""

    # Checks of models query the database, and take the write lock of SQLite; a probe must not.
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
            # The reader has closed the pipe. Python would print an error when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(FAILED)
        if code:
            sys.exit(code)

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Run Django's checks; a wrong configuration exits with the code for wrong usage."""
        try:
            super().check(*args, **kwargs)
        except SystemCheckError as error:
            error.returncode = USAGE
            raise

    def run(self, output: Output, options: dict[str, Any]) -> int:
        """Run the command and return its exit code: 0 done, 1 failed."""
        raise NotImplementedError


def _refusal(error: DatabaseError) -> str:
    """The message of a database error; for missing tables, the command to run."""
    if is_schema_missing(error):
        for alias in job_databases(get_settings()):
            try:
                require_tables(alias)
            except TablesMissing as missing:
                return str(missing)
            except Error:
                continue
    message = str(error).strip()
    if isinstance(error, TablesMissing):
        return message
    return f"the database refused: {message}; is it up, and has migrate been run?"


def epilog(examples: str) -> str:
    """The end of a help text: examples and exit codes."""
    lines = [f"  manage.py {line.strip()}" for line in examples.strip().splitlines()]
    return "\n".join(["examples:", *lines, "", "exit codes: 0 done, 1 failed, 2 wrong usage"])


def refused(text: str) -> CommandError:
    """An error for wrong usage: exit code 2."""
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
    """The alias from ``--database``; refuses a database without job tables."""
    aliases = job_databases(get_settings())
    if alias is not None and alias not in aliases:
        raise refused(f"--database {alias!r} holds no jobs; use {' or '.join(aliases)}")
    return alias or jobs_database()


# Confirmation before changes that cannot be undone.


def check_can_ask(way_out: str, *, as_json: bool) -> None:
    """Refuse to ask where there is no terminal, or where the output is JSON."""
    if as_json:
        raise refused(f"--json leaves no room for a question; add {way_out}")
    if not sys.stdin.isatty():
        raise refused(f"there is no terminal to ask for confirmation; add {way_out}")


def confirmed(question: str) -> bool:
    """Ask for confirmation. No answer means no."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def system_user() -> str:
    """The operating-system user that runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


SHOWN_FROM = 51
_LINES = 10


@contextmanager
def progress(stream: OutputWrapper, total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Show progress; yields a function to call with the number of newly finished items.

    A bar in a terminal with rich, otherwise some lines. It goes to standard error, so that
    standard output stays machine-readable.
    """
    if total < SHOWN_FROM:
        yield lambda _count: None
        return
    if stream.isatty():
        try:
            from rich.console import Console  # noqa: PLC0415 - an extra; it may be absent
            from rich.progress import MofNCompleteColumn, Progress  # noqa: PLC0415 - as above
        except ImportError:
            pass
        else:
            console = Console(stderr=True)
            columns = (*Progress.get_default_columns(), MofNCompleteColumn())
            with Progress(*columns, console=console) as bar:
                bar_id = bar.add_task(label, total=total)
                yield lambda count: bar.advance(bar_id, count)
            return
    yield _Lines(stream, total, label).advance


class _Lines:
    """Prints a line for each tenth of the total."""

    def __init__(self, stream: OutputWrapper, total: int, label: str) -> None:
        self._stream = stream
        self._total = total
        self._label = label
        self._done = 0
        self._last_tenth = 0

    def advance(self, count: int) -> None:
        self._done += count
        tenth = min(self._done, self._total) * _LINES // self._total
        if tenth > self._last_tenth:
            self._last_tenth = tenth
            self._stream.write(f"{self._label}: {self._done} of {self._total}", lambda text: text)
            self._stream.flush()


# Repeating until Ctrl-C.

_SLICE_SECONDS = 0.1


class WatchLoop:
    """Repeats a look until Ctrl-C: the first ends it after the current look, the second at once.

    The first one only sets a flag: a KeyboardInterrupt during the clean-up of a database driver
    would be lost.
    """

    def __init__(self, look: Callable[[], None], interval: float) -> None:
        self._look = look
        self._interval = interval
        self._over = False

    def run(self) -> None:
        """Look until interrupted."""
        if threading.current_thread() is not threading.main_thread():
            self._loop()
            return
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            self._loop()
        finally:
            signal.signal(signal.SIGINT, before)

    def _loop(self) -> None:
        while not self._over:
            self._look()
            self._pause()

    def _pause(self) -> None:
        next_look = time.monotonic() + self._interval
        while not self._over and (left := next_look - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_SECONDS))

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        if self._over:
            raise KeyboardInterrupt
        self._over = True
