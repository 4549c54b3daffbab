"""Payloads that are command lines: a list of words, the first of them a name.

Errors say what is wrong with which word and never show one: words may be passwords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.exceptions import HandlerRefused, InvalidPayload

if TYPE_CHECKING:
    from django_jobs.conf.model import Arguments

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


def check_arguments(key: str, name: str, given: list[str], allowed: Arguments) -> None:
    """Raise HandlerRefused unless the arguments have a form that is allowed."""
    if not allowed.fit(given):
        raise HandlerRefused(
            f"{key}: {name!r} may not be given these {len(given)} arguments; its entry in the "
            "allow-list says which forms it may have"
        )
