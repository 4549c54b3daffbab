"""The handler: what may be started is started, and what fails says so."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from django_jobs.conf import get_settings
from django_jobs.exceptions import ProgramFailed
from django_jobs.handlers.argv import check_arguments, words_of
from django_jobs.handlers.shell.programs import Program, find_program
from django_jobs.handlers.shell.running import Order, Run

if TYPE_CHECKING:
    from django_jobs.conf import JobsSettings
    from django_jobs.handlers.base import JobContext
    from django_jobs.handlers.shell.running import Ended

LONGEST_GRACE = 2.0
_MEANINGS = {"SIGXCPU": "it used up CPU_SECONDS", "SIGXFSZ": "it wrote more than FILE_BYTES"}


class ShellHandler:
    """Runs one program. What it prints is kept with the attempt."""

    key = "shell"

    def validate(self, payload: Any) -> None:
        _allowed(payload, get_settings())

    def destination(self, payload: Any) -> list[str]:
        """Every word: any of them may say where another one goes."""
        return words_of(self.key, payload)

    def admit(self, payload: Any) -> None:
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
        if told := _trouble(Run(order).to_its_end()):
            raise ProgramFailed(f"{program.entry} {told}")


def _allowed(payload: Any, settings: JobsSettings) -> tuple[Program, list[str]]:
    word, *arguments = words_of(ShellHandler.key, payload)
    program = find_program(word, settings)
    allowed = settings.allowed_shell_commands[program.entry]
    check_arguments(ShellHandler.key, program.entry, arguments, allowed)
    return program, arguments


def _trouble(ended: Ended) -> str:
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
