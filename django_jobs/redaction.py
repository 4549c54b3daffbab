"""Payloads for people: what a telling key holds is put out of sight."""

from __future__ import annotations

import json
import re
from typing import Any

HIDDEN = "••••"
_TELLING = re.compile(
    r"password|secret|token|api[_-]?key|authorization|signature|cookie", re.IGNORECASE
)


def is_telling(key: str) -> bool:
    """Whether a key promises a secret."""
    return _TELLING.search(key) is not None


def redacted(value: Any) -> Any:
    """The same value without its secrets."""
    if isinstance(value, dict):
        return {key: HIDDEN if is_telling(key) else redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return value


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
