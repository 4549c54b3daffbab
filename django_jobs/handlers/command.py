"""``command``: a Django management command, in the process of the worker.

The payload is a list, ``["dumpdata", "shop", "--indent", "2"]``. A name has to be in
``ALLOWED_COMMANDS`` exactly, with arguments in an allowed form. The handler ``shell`` shares the
checks of command lines. Errors never show a word, which may be a password; they name its place.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.core.management import call_command

from django_jobs.conf import get_settings
from django_jobs.conf.model import nearest, shown
from django_jobs.exceptions import CommandFailed, HandlerRefused, InvalidPayload
from django_jobs.handlers.base import Handler

if TYPE_CHECKING:
    from django_jobs.conf.model import Arguments
    from django_jobs.handlers.base import JobContext


MOST_WORDS = 1000
LONGEST_WORD = 100_000
_LARGEST = 2**63


def words_of(key: str, payload: Any) -> list[str]:
    """The words of a payload; raises InvalidPayload. A text is split at white space."""
    words = payload.split() if isinstance(payload, str) else payload
    if not isinstance(words, list | tuple) or not 0 < len(words) <= MOST_WORDS:
        raise InvalidPayload(
            f'{key} takes a list of 1 to {MOST_WORDS} words such as ["name", "--option", "value"], '
            "or a text that is split at white space"
        )
    return [_word(key, place, word) for place, word in enumerate(words)]


def _word(key: str, place: int, word: Any) -> str:
    if isinstance(word, bool) or not isinstance(word, str | int):
        raise InvalidPayload(
            f"{key}: word {place} is of type {type(word).__name__}; "
            "words are texts or whole numbers"
        )
    if isinstance(word, int):
        if not -_LARGEST <= word < _LARGEST:
            raise InvalidPayload(f"{key}: word {place} is too large a number; give it as text")
        return str(int(word))
    if "\0" in word or len(word) > LONGEST_WORD or not (word or place):
        raise InvalidPayload(
            f"{key}: word {place} is not 1 to {LONGEST_WORD:,} characters, without NUL"
        )
    return str(word)


def check_arguments(key: str, name: str, arguments: list[str], allowed: Arguments) -> None:
    """Raise HandlerRefused unless the arguments have an allowed form."""
    if not allowed.fit(arguments):
        raise HandlerRefused(
            f"{key}: {name!r} may not be given these {len(arguments)} arguments; its entry in the "
            "allow-list says which forms it may have"
        )


class CommandLineHandler(Handler):
    """A handler of command lines, checked at enqueue and again before a run."""

    def admit(self, payload: Any) -> None:
        self.validate(payload)

    def destination(self, payload: Any) -> list[str]:
        """Every word: any of them may name a destination."""
        return words_of(self.key, payload)


class CommandHandler(CommandLineHandler):
    """Runs one management command. Its output is kept with the attempt."""

    key = "command"

    def validate(self, payload: Any) -> None:
        self._allowed(payload)

    def handle(self, context: JobContext) -> None:
        name, *arguments = self._allowed(context.payload)
        try:
            # Colours would only be escape sequences in the kept output. A command object made
            # earlier writes to the standard output of that time unless it gets the current one.
            call_command(name, *arguments, no_color=True, stdout=sys.stdout, stderr=sys.stderr)
        except SystemExit as ended:
            if ended.code not in {None, 0}:
                reason = f"exit code {ended.code}" if isinstance(ended.code, int) else ended.code
                raise CommandFailed(f"the command {name!r} ended with {reason}") from ended

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
