"""The handler ``shell``: find the allowed program, run it, and report its failure."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_jobs.conf import get_settings
from django_jobs.conf.model import shown
from django_jobs.exceptions import HandlerRefused, ProgramFailed
from django_jobs.handlers.command import CommandLineHandler, check_arguments, words_of
from django_jobs.handlers.shell.process import Order, ProgramRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.conf import JobsSettings
    from django_jobs.handlers.base import JobContext
    from django_jobs.handlers.shell.process import ProgramEnded


@dataclass(frozen=True, slots=True)
class Program:
    """An entry of the allow-list, and its file; None if this machine does not have it."""

    entry: str
    path: str | None


def find_program(word: str, settings: JobsSettings) -> Program:
    """The allowed program that a word means; raises HandlerRefused.

    Files are compared after resolving all links, and the resolved path is started, so no link is
    followed a second time. The worker's ``PATH`` and directory play no part, nor does a first
    argument chosen by the job.
    """
    entries = settings.allowed_shell_commands
    if word in entries:
        return Program(word, real_path(word))
    path = _located(word, settings.shell.path)
    same = [entry for entry in entries if path is not None and real_path(entry) == path]
    if len(same) > 1:  # a program such as busybox acts by its name
        same = [entry for entry in same if os.path.basename(entry) == os.path.basename(word)]  # noqa: PTH119 - text, not a file
    if len(same) != 1:
        raise HandlerRefused(
            f"the program {shown(word)} is not in ALLOWED_SHELL_COMMANDS; add its absolute path "
            "there if jobs may start it"
        )
    return Program(same[0], path)


def _located(word: str, directories: Sequence[str]) -> str | None:
    if word.startswith("/"):
        return real_path(word)
    if "/" in word:  # a relative path means another file in each directory
        return None
    paths = (real_path(f"{directory}/{word}") for directory in directories)
    return next((path for path in paths if path is not None), None)


def real_path(path: str) -> str | None:
    """The executable file behind a path, or None."""
    try:
        real = os.path.realpath(path, strict=True)
    except (OSError, ValueError):
        return None
    return real if os.path.isfile(real) and os.access(real, os.X_OK) else None  # noqa: PTH113 - text in, text out


LONGEST_GRACE = 2.0
_MEANINGS = {"SIGXCPU": "it used up CPU_SECONDS", "SIGXFSZ": "it wrote more than FILE_BYTES"}


class ShellHandler(CommandLineHandler):
    """Runs one program. Its output is kept with the attempt."""

    key = "shell"

    def validate(self, payload: Any) -> None:
        _allowed(payload, get_settings())

    def handle(self, context: JobContext) -> None:
        settings = get_settings()
        program, arguments = _allowed(context.payload, settings)
        if program.path is None:
            raise ProgramFailed(f"{program.entry} is not there, or cannot be started")
        order = Order(
            path=program.path,
            argv=[program.entry, *arguments],
            surroundings=settings.shell,
            timeout=context.timeout,
            ends_at=context.ends_at,
            grace=min(LONGEST_GRACE, settings.kill_grace / 2),
        )
        if failure := _failure_of(ProgramRun(order).to_its_end()):
            raise ProgramFailed(f"{program.entry} {failure}")


def _allowed(payload: Any, settings: JobsSettings) -> tuple[Program, list[str]]:
    word, *arguments = words_of(ShellHandler.key, payload)
    program = find_program(word, settings)
    allowed = settings.allowed_shell_commands[program.entry]
    check_arguments(ShellHandler.key, program.entry, arguments, allowed)
    return program, arguments


def _failure_of(ended: ProgramEnded) -> str:
    if ended.error:
        return f"could not be run: {ended.error}"
    if ended.exit == 0:
        return ""
    how = f"ended with exit code {ended.exit}" if ended.signal is None else _killed(ended.signal)
    return f"{how}: {ended.tail.strip()}" if ended.tail.strip() else how


def _killed(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    meaning = _MEANINGS.get(name)
    return f"was ended by {name}" + (f" ({meaning})" if meaning else "")
