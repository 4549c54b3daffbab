"""One request and its answer, over a connection of their own."""

from __future__ import annotations

import http.client
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django_jobs.exceptions import UrlFailed
from django_jobs.handlers.url.connecting import Wire, connected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.handlers.url.deadline import Deadline
    from django_jobs.handlers.url.host import Address
    from django_jobs.handlers.url.request import Request
    from django_jobs.handlers.url.rules import Rule

HEADER_BYTES = 64 * 1024
FRAMING = 16
"""How many bytes of framing (chunk sizes, trailers) may come with one byte of a body."""
_PIECE = 64 * 1024
_DEFAULTS = {"Accept": "*/*", "User-Agent": "django_jobs"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said, as far as it was read."""

    status: int
    content_type: str = ""
    locations: tuple[str, ...] = ()
    body: bytes = field(default=b"", repr=False)
    truncated: bool = False


def exchange(
    request: Request, rule: Rule, addresses: Sequence[Address], deadline: Deadline
) -> Answer:
    """Send a request to the first of the addresses that answers; raises UrlFailed."""
    try:
        with connected(request.target, rule, addresses, deadline) as sock:
            wire = Wire(sock, deadline, HEADER_BYTES)
            response = _asked(request, wire)
            wire.allowance = HEADER_BYTES + FRAMING * (rule.max_bytes + 1)
            return _answer(response, rule.max_bytes)
    except TimeoutError:
        deadline.left()
        raise UrlFailed(f"{request.target} did not answer in time") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        # Their texts may quote what the server sent; the type says what went wrong. A
        # ValueError is http.client's for a chunk of negative size.
        told = type(error).__name__
        raise UrlFailed(f"the exchange with {request.target} broke off ({told})") from None


def _asked(request: Request, wire: Wire) -> http.client.HTTPResponse:
    target = request.target
    connection = http.client.HTTPConnection(target.host.name, target.port)
    connection.auto_open = 0
    connection.sock = wire
    connection.putrequest(
        request.method, target.in_request, skip_host=True, skip_accept_encoding=True
    )
    for name, value in _all_headers(request).items():
        connection.putheader(name, value)
    connection.endheaders(request.body)
    return connection.getresponse()


def _all_headers(request: Request) -> dict[str, str]:
    given = {name.lower() for name in request.headers}
    headers = {"Host": request.target.authority}
    headers |= {name: value for name, value in _DEFAULTS.items() if name.lower() not in given}
    headers |= request.headers
    headers |= {"Accept-Encoding": "identity", "Connection": "close"}
    if request.body is not None or request.method in {"PATCH", "POST", "PUT"}:
        headers["Content-Length"] = str(len(request.body or b""))
    return headers


def _answer(response: http.client.HTTPResponse, limit: int) -> Answer:
    body, truncated = _body(response, limit)
    return Answer(
        status=response.status,
        content_type=response.headers.get("Content-Type", ""),
        locations=tuple(response.headers.get_all("Location", [])),
        body=body,
        truncated=truncated,
    )


def _body(response: http.client.HTTPResponse, limit: int) -> tuple[bytes, bool]:
    """The body up to the limit, and whether there was more. Nothing is decompressed."""
    parts: list[bytes] = []
    room = limit + 1
    while room > 0 and (part := response.read(min(room, _PIECE))):
        parts.append(part)
        room -= len(part)
    if room > 0 and response.length:
        raise http.client.IncompleteRead(b"", response.length)
    body = b"".join(parts)
    return body[:limit], len(body) > limit
