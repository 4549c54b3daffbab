"""Payloads and messages for people: what a telling key holds is put out of sight."""

from __future__ import annotations

import json
import re
from typing import Any

HIDDEN = "••••"
_WORDS = r"(?:password|passwd|secret|token|api[_-]?key|authorization|signature|cookie)"
_TELLING = re.compile(_WORDS, re.IGNORECASE)
_VALUE = r"""(?:(?:bearer|basic|token)\s+)?(?:"[^"]*"|'[^']*'|[^\s,;&"']+)"""
# Every repetition is bounded or cannot overlap its neighbour, so that no text takes long.
_TOLD = re.compile(
    rf"({_WORDS}[\w-]{{0,40}}[\"']?\s{{0,4}}[=:]\s{{0,4}}){_VALUE}"
    rf"|((?<!\S)-[\w-]{{0,40}}?{_WORDS}[\w-]{{0,40}}\s{{1,4}})[^\s-]\S*",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"-[\w-]{{0,60}}?{_WORDS}[\w-]*", re.IGNORECASE)
_ASSIGNMENT = re.compile(rf"([\w-]{{0,60}}?{_WORDS}[\w-]*=).*", re.IGNORECASE | re.DOTALL)


def is_telling(key: str) -> bool:
    """Whether a key promises a secret."""
    return _TELLING.search(key) is not None


def redacted(value: Any) -> Any:
    """The same value without its secrets."""
    if isinstance(value, dict):
        return {key: HIDDEN if is_telling(key) else redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _of_words(before, item) for before, item in zip([None, *value], value, strict=False)
        ]
    return value


def _of_words(before: Any, item: Any) -> Any:
    """An item of a list, which may be a command line: ``--password=x``, ``--password x``."""
    if not isinstance(item, str):
        return redacted(item)
    if isinstance(before, str) and not item.startswith("-") and _OPTION.fullmatch(before):
        return HIDDEN
    return _ASSIGNMENT.sub(rf"\1{HIDDEN}", item) if _ASSIGNMENT.fullmatch(item) else item


def scrubbed(text: str) -> str:
    """A message without the secrets that stand behind a telling word in it."""
    return _TOLD.sub(lambda found: f"{found[1] or found[2]}{HIDDEN}", text)


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
