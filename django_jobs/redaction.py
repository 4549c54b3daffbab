"""Payloads and messages for people: what a telling key holds is put out of sight."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_jobs.conf import get_settings

HIDDEN = "••••"
LONGEST_KEY = 200
# Telling wherever they stand in a key: PGPASSWORD, csrftoken, apiKey.
_ANYWHERE = re.compile(
    "passw(?:or)?d|pwd|passphrase|passcode|secret|token|credential|authori[sz]ation|signature|cookie"
    "|(?:api|private|access|signing|encryption|session)_?key|session_?id"
)
# Telling as a word of their own: neither author nor passenger.
_WORDS = ("pass", "pw", "auth", "oauth", "dsn", "jwt", "bearer")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN = re.compile(r"[\W_]+")
_BETWEEN_LETTERS = re.compile(r"[\W\d_]+")
_HEADERS = ("authorization", "cookie", "cookies")
_ERRORS = ("error", "exception", "warning")

# Every repetition is bounded, possessive, or ends where the next one begins, so that no text
# takes long.
_PLACE = re.compile(
    r"""(?P<key>(?<![\w-])[\w-]++)\\{0,8}["'\]]{0,2}\s{0,4}(?:=>|[=:])\s{0,4}"""
    r"""|(?P<option>(?<!\S)-[\w-]++)\s{1,4}(?=[^\s-])"""  # --password x
    r"""|["'](?P<word>-[\w-]++)["'],\s{0,4}(?=["'][^-])"""  # ['--password', 'x']
    r"""|(?P<scheme>(?<![\w-])[Bb]earer\s{1,4}(?=[^\s\d]{0,300}\d))"""
)
_VALUE = re.compile(
    r"""(?:(?:bearer|basic|token|digest)\s{1,4})?(?:"""
    r"""\\{1,8}["'].*?\\{1,8}["']"""  # inside of another text
    r"""|[bru]{0,2}"(?:[^"\\]|\\.){0,4000}+"|[bru]{0,2}'(?:[^'\\]|\\.){0,4000}+'"""
    r"""|\\{0,8}[bru]{0,2}["'][^\n]++"""  # cut off
    r"""|[\[{(][^\n\]})]*+[\]})]?"""
    r"""|[^\s,;&"']++)""",
    re.IGNORECASE | re.DOTALL,
)
_REST_OF_LINE = re.compile(r"""(?!\\{0,8}["'\[{(])[^\n]++""")
# Up to the last @ before the path: a password may hold one, and a user may be a token.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s?#]+(?=@)")
_OPTION = re.compile(r"-[\w-]++")
_ASSIGNMENT = re.compile(r"([\w-]++)=")


def is_telling(key: str) -> bool:
    """Whether a key promises a secret: by its words, however they are joined."""
    joined = _BETWEEN.sub("_", _HUMP.sub("_", key[-LONGEST_KEY:])).lower()
    return _is_telling(joined, _own_words())


@lru_cache(maxsize=1024)
def _is_telling(joined: str, own: tuple[str, ...]) -> bool:
    if _ANYWHERE.search(joined):
        return True
    plain, bare = f"_{joined}_", f"_{_BETWEEN_LETTERS.sub('_', joined)}_"
    return any(f"_{word}_" in bare for word in _WORDS) or any(
        f"_{_joined(word)}_" in plain for word in own
    )


def _joined(word: str) -> str:
    return _BETWEEN.sub("_", _HUMP.sub("_", word)).strip("_").lower()


def _own_words() -> tuple[str, ...]:
    try:
        return get_settings().redact_keys
    except ImproperlyConfigured:  # whoever tells of an error must not make another one
        return ()


def redacted(value: Any) -> Any:
    """The same value without its secrets."""
    if isinstance(value, dict):
        return {key: HIDDEN if is_telling(key) else redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _of_words(before, item) for before, item in zip([None, *value], value, strict=False)
        ]
    return scrubbed(value) if isinstance(value, str) else value


def _of_words(before: Any, item: Any) -> Any:
    """An item of a list, which may be a command line: ``--password=x``, ``--password x``."""
    if not isinstance(item, str):
        return redacted(item)
    if isinstance(before, str) and not item.startswith("-") and _asks_for_a_secret(before):
        return HIDDEN
    found = _ASSIGNMENT.match(item)
    return f"{found[0]}{HIDDEN}" if found and is_telling(found[1]) else scrubbed(item)


def _asks_for_a_secret(option: str) -> bool:
    # What -p means only its program knows; that of database clients is the password.
    return option == "-p" or (_OPTION.fullmatch(option) is not None and is_telling(option))


def scrubbed(text: str) -> str:
    """A message without the secrets that stand behind a telling word in it, or in a URL."""
    text = _CREDENTIALS.sub(HIDDEN, text)
    parts: list[str] = []
    kept = at = 0
    while place := _PLACE.search(text, at):
        at = place.end()
        if value := _secret_at(text, place):
            parts += (text[kept:at], HIDDEN)
            kept = at = value.end()
    return "".join((*parts, text[kept:]))


def _secret_at(text: str, place: re.Match[str]) -> re.Match[str] | None:
    if place["scheme"]:
        return _VALUE.match(text, place.end())
    key = place["key"] or place["option"] or place["word"]
    if not is_telling(key):
        return None
    name = key.lower()
    if place["key"] and name.endswith(_ERRORS):  # tells what happened: AuthError, not auth
        return None
    # A header has parameters: the rest of its line belongs to it.
    line = _REST_OF_LINE.match(text, place.end()) if name.endswith(_HEADERS) else None
    return line or _VALUE.match(text, place.end())


def field_of(body: str, name: str) -> Any:
    """A field of a body, redacted; None when there is none, or the body cannot be read."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return redacted(fields.get(name)) if isinstance(fields, dict) else None


def laid_out(value: Any) -> str:
    """JSON over several lines."""
    return json.dumps(value, indent=2, ensure_ascii=False)
