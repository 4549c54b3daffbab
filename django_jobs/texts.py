"""Make foreign texts safe to show in a log, on a terminal or on a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_CUT = "\n… cut …\n"
# Characters that no database stores (NUL, lone surrogates) or that mislead a terminal or a reader:
# control characters, and those that reverse text or are invisible. Not the two joiners that
# Persian, Hindi and emoji need.
_ODD = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
)
# Forms send \r\n at the ends of lines, so a \r before \n is allowed. The lookbehind
# comes last, where few characters are left to check. Compiled on first use, for few processes need
# it.
_ODD_IN_LINES = rf"[{_ODD}](?<!\r(?=\n))"
_ODD_IN_A_LINE = f"[\t\n{_ODD}]"


def printable(text: str) -> str:
    """A text that may have several lines, with odd characters written as escapes."""
    return text if text.isprintable() else rewritten(text)


def one_line(text: str) -> str:
    """A text on one line, for a sentence or a cell of a table."""
    return text if text.isprintable() else rewritten(text, odd=_ODD_IN_A_LINE)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def rewritten(text: str, write: Callable[[str], str] = _escaped, odd: str = _ODD_IN_LINES) -> str:
    """A text with its odd characters replaced by ``write(character)``."""
    return re.sub(odd, lambda found: write(found[0]), text)


def capped(text: str, limit: int) -> str:
    """The text, with its middle cut out where it is longer than the limit."""
    if len(text) <= limit:
        return text
    half = (limit - len(_CUT)) // 2
    return f"{text[:half]}{_CUT}{text[-half:]}"


SHOWN_LENGTH = 80


def shortened(text: str) -> str:
    """A text cut to fit an error message."""
    return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."
