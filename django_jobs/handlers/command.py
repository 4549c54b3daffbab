"""``command``: a Django management command, in the process of the worker.

The payload is a list, ``["dumpdata", "shop", "--indent", "2"]``. A name has to be in
``ALLOWED_COMMANDS`` as it is written there, with arguments of a form that is allowed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.core.management import call_command

from django_jobs.conf import get_settings
from django_jobs.conf.model import nearest, shown
from django_jobs.exceptions import CommandFailed, HandlerRefused
from django_jobs.handlers.argv import check_arguments, words_of

if TYPE_CHECKING:
    from django_jobs.handlers.base import JobContext


class CommandHandler:
    """Runs one management command. What it prints is kept with the attempt."""

    key = "command"

    def validate(self, payload: Any) -> None:
        self._allowed(payload)

    def destination(self, payload: Any) -> list[str]:
        """Every word: any of them may say where another one goes."""
        return words_of(self.key, payload)

    def admit(self, payload: Any) -> None:
        self._allowed(payload)

    def handle(self, context: JobContext) -> None:
        name, *arguments = self._allowed(context.payload)
        try:
            # Colours would only be escapes in what is kept. A command that was made before
            # writes to where standard output went then, unless it is told.
            call_command(name, *arguments, no_color=True, stdout=sys.stdout, stderr=sys.stderr)
        except SystemExit as ended:
            if ended.code not in {None, 0}:
                said = f"exit code {ended.code}" if isinstance(ended.code, int) else ended.code
                raise CommandFailed(f"the command {name!r} ended with {said}") from ended

    def _allowed(self, payload: Any) -> list[str]:
        words = words_of(self.key, payload)
        name, *arguments = words
        allowed = get_settings().allowed_commands
        if name not in allowed:
            raise HandlerRefused(
                f"the command {shown(name)} is not in ALLOWED_COMMANDS{nearest(name, allowed)}; "
                "add it there if jobs may run it"
            )
        check_arguments(self.key, name, arguments, allowed[name])
        return words
