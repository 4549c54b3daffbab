"""From a payload to a well-formed request. Whether it is allowed is decided in ``allow_list``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django_jobs.exceptions import InvalidPayload, UrlRefused
from django_jobs.handlers.url.url import Target
from django_jobs.wire import strict_json

if TYPE_CHECKING:
    from collections.abc import Mapping

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
WITHOUT_BODY = frozenset({"GET", "HEAD"})
FORM = '{"method": "POST", "url": "https://…", "headers": {}, "body": null}'

MAX_HEADERS = 50
MAX_VALUE = 4096
MAX_HEADER_BYTES = 16_384
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
OURS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that frame the message or choose the server: set by no payload and no setting."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, ready to be checked. Headers and body may hold secrets."""

    method: str
    target: Target
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, payload: Any) -> Request:
        """Parse a payload; raises InvalidPayload or UrlRefused."""
        if not isinstance(payload, dict) or not isinstance(payload.get("url"), str):
            raise InvalidPayload(f"url takes a payload of the form {FORM}")
        if unknown := payload.keys() - {"method", "url", "headers", "body"}:
            listed = ", ".join(sorted(map(repr, unknown)))
            raise InvalidPayload(f"url knows no {listed}; its payload has the form {FORM}")
        method = _method(payload.get("method", "GET"))
        headers = _headers(payload.get("headers"))
        body, kind = _body(method, payload.get("body"))
        if kind and "content-type" not in map(str.lower, headers):
            headers["Content-Type"] = kind
        return cls(method, Target.parse(payload["url"]), headers, body)


def is_ours(name: str) -> bool:
    """Whether only the handler sets this header. Servers may read '_' as '-'."""
    plain = name.lower().replace("_", "-")
    return plain in OURS or plain.startswith("proxy-")


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _method(value: object) -> str:
    if not isinstance(value, str) or value.upper() not in METHODS:
        raise InvalidPayload(f"url: the method is none of {', '.join(sorted(METHODS))}")
    return value.upper()


def _headers(value: object) -> dict[str, str]:
    headers = {} if value is None else value
    if not isinstance(headers, dict):
        raise InvalidPayload("url: headers is a dict of texts, or left out")
    if len(headers) > MAX_HEADERS:
        raise InvalidPayload(f"url: there are more than {MAX_HEADERS} headers")
    for name, content in headers.items():
        _check_header(name, content)
    if len({name.lower().replace("_", "-") for name in headers}) < len(headers):
        raise InvalidPayload("url: two headers have the same name")
    if sum(len(name) + len(content) for name, content in headers.items()) > MAX_HEADER_BYTES:
        raise InvalidPayload(f"url: the headers have more than {MAX_HEADER_BYTES:,} characters")
    return dict(headers)


def _check_header(name: object, content: object) -> None:
    """Refuse a header that could end its line or change the framing. Values are not shown."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidPayload(
            "url: a header has a name that is not 1 to 64 letters, digits, '-' and '_'"
        )
    if is_ours(name):
        raise UrlRefused(f"url: the header {name} is set by the handler itself; leave it out")
    if not isinstance(content, str) or len(content) > MAX_VALUE or not _VALUE.fullmatch(content):
        raise InvalidPayload(
            f"url: the value of the header {name} is not a text of 1 to {MAX_VALUE:,} printable "
            "ASCII characters without a space at either end"
        )


def _body(method: str, value: object) -> tuple[bytes | None, str]:
    """The bytes to send, and their content type unless a header names one."""
    if value is None:
        return None, ""
    if method in WITHOUT_BODY:
        raise InvalidPayload(f"url: a {method} request has no body")
    if isinstance(value, str):
        return _encoded(value), "text/plain; charset=utf-8"
    if isinstance(value, dict | list):
        return _as_json(value), "application/json"
    raise InvalidPayload("url: the body is a text, a dict or list to be sent as JSON, or null")


def _as_json(value: object) -> bytes:
    try:
        return strict_json.dumps(value).encode()
    except strict_json.NotStrictJson as error:
        raise InvalidPayload(f"url: {error}") from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidPayload("url: the body holds a lone surrogate") from None
