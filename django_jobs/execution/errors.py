"""Exceptions as text: capped, printable, without the values of local variables."""

from __future__ import annotations

import hashlib
import re
import traceback
from typing import TYPE_CHECKING

from django_jobs.outcome import ErrorText
from django_jobs.redaction import scrubbed, without_key_blocks
from django_jobs.texts import capped, one_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

MAX_MESSAGE = 4096
MAX_TRACEBACK = 64 * 1024
MAX_TYPE = 255
# Lines of code, which hold no secrets, are indented; in an exception group, behind a bar.
_LINES_OF_TEXT = re.compile(r"^(?: *\| )?(?! ).+", re.MULTILINE)
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


def error_text(error: BaseException) -> ErrorText:
    """An exception as it is kept: with its traceback, without the values of variables."""
    try:
        message = str(error)
    except BaseException as unprintable:  # noqa: BLE001 - an error's own str() may be broken
        message = f"<its text raised {type(unprintable).__name__}>"
    try:
        formatted = traceback.TracebackException.from_exception(error, capture_locals=False)
        text = "".join(formatted.format())
    except BaseException:  # noqa: BLE001 - as above, for a cause further down
        text = "".join(traceback.format_tb(error.__traceback__))
    return ErrorText(
        type=type_path(type(error)),
        message=shown(message, MAX_MESSAGE),
        traceback=_kept(text, MAX_TRACEBACK, _scrubbed_lines),
    )


def _scrubbed_lines(text: str) -> str:
    return _LINES_OF_TEXT.sub(lambda found: scrubbed(found.group()), without_key_blocks(text))


def shown(text: str, limit: int) -> str:
    """A handler's text as it is kept: printable, capped, and without what looks secret."""
    return _kept(text, limit, scrubbed)


def _kept(text: str, limit: int, scrub: Callable[[str], str]) -> str:
    # Cap twice: first to search only part of a huge text, then to the exact length.
    return capped(scrub(printable(capped(text, 4 * limit))), limit)


def type_path(kind: type[BaseException]) -> str:
    """The dotted path of an exception class, plain for built-in ones."""
    plain = kind.__module__ == "builtins"
    path = kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"
    return one_line(path)[:MAX_TYPE]


def fingerprint(handler: str, error: BaseException) -> str:
    """A digest of handler, type and place, equal for failures that are likely the same bug."""
    places = [f"{frame.filename}:{frame.name}" for frame in _frames(error.__traceback__)]
    text = _NUMBERS.sub("#", "\n".join((handler, type_path(type(error)), *places[-3:])))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _frames(trace: TracebackType | None) -> traceback.StackSummary:
    return traceback.extract_tb(trace)
