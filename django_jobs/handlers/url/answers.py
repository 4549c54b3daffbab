"""Answers for people and for the result: as text, and in output without secrets."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from django_jobs.redaction import HIDDEN, is_telling, redacted, scrubbed

if TYPE_CHECKING:
    from django_jobs.handlers.url.exchange import Answer
    from django_jobs.handlers.url.request import Request

EXCERPT = 2_000
SHORTEST_SECRET = 4
# A few encodings that cannot be asked to do anything but decode. All else is UTF-8.
_CHARSETS = {"iso-8859-1": "latin-1", "latin-1": "latin-1", "windows-1252": "cp1252"}
_CHARSET = re.compile(r"charset=\"?([\w-]{1,20})")


def as_result(answer: Answer) -> dict[str, Any]:
    """What is kept of a successful call."""
    return {
        "status": answer.status,
        "body": _text(answer),
        "truncated": answer.truncated,
    }


def excerpt(answer: Answer, request: Request) -> str:
    """The beginning of an answer's body for the output of a failed job, without secrets: not
    those of the answer, and not those of the request, which servers like to repeat.
    """
    text = _told(_text(answer))
    for secret in _secrets(request):
        text = text.replace(secret, HIDDEN)
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]} …"


def _told(text: str) -> str:
    try:
        return json.dumps(redacted(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return scrubbed(text[: 4 * EXCERPT])


def _secrets(request: Request) -> list[str]:
    """Values of telling headers, whole and in words, the longest first."""
    telling = [value for name, value in request.headers.items() if is_telling(name)]
    words = {word for value in telling for word in (value, *value.split())}
    return sorted((word for word in words if len(word) >= SHORTEST_SECRET), key=len, reverse=True)


def _text(answer: Answer) -> str:
    named = _CHARSET.search(answer.content_type)
    charset = _CHARSETS.get(named[1].lower() if named else "", "utf-8")
    return answer.body.decode(charset, "replace")
