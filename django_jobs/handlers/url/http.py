"""One request and its answer, over their own connection and within one deadline."""

from __future__ import annotations

import http.client
import io
import ipaddress
import json
import re
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django_jobs.exceptions import UrlFailed
from django_jobs.redaction import HIDDEN, is_sensitive, redacted, scrubbed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import WriteableBuffer

    from django_jobs.handlers.url.allow_list import UrlRule
    from django_jobs.handlers.url.request import Request
    from django_jobs.handlers.url.url import Address, Target


CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
MAX_TRIES = 4


def connected(
    target: Target, rule: UrlRule, addresses: Sequence[Address], deadline: Deadline
) -> socket.socket:
    """A socket to the target, with TLS where its scheme says so; raises UrlFailed, OSError.

    Proxies are not used: a proxy would resolve the name again, by itself.
    """
    sock = _first(target, addresses, deadline)
    if target.scheme == "http":
        return sock
    try:
        context = ssl.create_default_context(cafile=rule.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        sock.settimeout(deadline.left(READ_SECONDS))
        return context.wrap_socket(sock, server_hostname=target.host.name)
    except BaseException:
        sock.close()
        raise


def _first(target: Target, addresses: Sequence[Address], deadline: Deadline) -> socket.socket:
    reason = ""
    for address in addresses[:MAX_TRIES]:
        try:
            return _to(address, target.port, deadline)
        except OSError as error:
            reason = type(error).__name__
    raise UrlFailed(f"{target} cannot be reached ({reason})")


def _to(address: Address, port: int, deadline: Deadline) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - of IP
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(deadline.left(CONNECT_SECONDS))
        sock.connect((str(address), port))
        require_peer(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def require_peer(sock: socket.socket, address: Address) -> None:
    """Raise UrlFailed unless the peer has the address that was checked."""
    if ipaddress.ip_address(sock.getpeername()[0]) != address:
        raise UrlFailed("the connection leads elsewhere than to the address that was checked")


class Wire:
    """A stand-in for a socket, for ``http.client``. Reads and writes end with the deadline, and
    ``allowance`` is the number of bytes that may still be received.
    """

    def __init__(self, sock: socket.socket, deadline: Deadline, allowance: int) -> None:
        self.sock = sock
        self.deadline = deadline
        self.allowance = allowance

    def sendall(self, data: bytes) -> None:
        self.sock.settimeout(self.deadline.left())
        self.sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self))

    def close(self) -> None:
        """Leave the socket open: ``exchange`` closes it."""

    def receive_into(self, buffer: WriteableBuffer) -> int:
        self.sock.settimeout(self.deadline.left(READ_SECONDS))
        received = self.sock.recv_into(buffer)
        self.allowance -= received
        if self.allowance < 0:
            raise UrlFailed("the answer has more bytes around its body than are accepted")
        return received


class _Incoming(io.RawIOBase):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._wire.receive_into(buffer)


HEADER_BYTES = 64 * 1024
FRAMING = 16
"""Bytes of framing (chunk sizes, trailers) allowed for each byte of a body."""
_PIECE = 64 * 1024
_DEFAULTS = {"Accept": "*/*", "User-Agent": "django_jobs"}


@dataclass(frozen=True, slots=True)
class UrlResponse:
    """A server's answer, as far as it was read."""

    status: int
    content_type: str = ""
    locations: tuple[str, ...] = ()
    body: bytes = field(default=b"", repr=False)
    truncated: bool = False


def exchange(
    request: Request, rule: UrlRule, addresses: Sequence[Address], deadline: Deadline
) -> UrlResponse:
    """Send a request to the first of the addresses that answers; raises UrlFailed."""
    try:
        with connected(request.target, rule, addresses, deadline) as sock:
            wire = Wire(sock, deadline, HEADER_BYTES)
            response = _sent(request, wire)
            wire.allowance = HEADER_BYTES + FRAMING * (rule.max_bytes + 1)
            return _answer(response, rule.max_bytes)
    except TimeoutError:
        deadline.left()
        raise UrlFailed(f"{request.target} did not answer in time") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        # Show the type only: the text of the error may quote what the server sent. http.client
        # raises ValueError for a chunk of negative size.
        reason = type(error).__name__
        raise UrlFailed(f"the exchange with {request.target} broke off ({reason})") from None


def _sent(request: Request, wire: Wire) -> http.client.HTTPResponse:
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
    from_payload = {name.lower() for name in request.headers}
    headers = {"Host": request.target.authority}
    headers |= {
        name: value for name, value in _DEFAULTS.items() if name.lower() not in from_payload
    }
    headers |= request.headers
    headers |= {"Accept-Encoding": "identity", "Connection": "close"}
    if request.body is not None or request.method in {"PATCH", "POST", "PUT"}:
        headers["Content-Length"] = str(len(request.body or b""))
    return headers


def _answer(response: http.client.HTTPResponse, limit: int) -> UrlResponse:
    body, truncated = _body(response, limit)
    return UrlResponse(
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


class Deadline:
    """One end for all steps of a call: after so many seconds, or with the attempt if earlier.

    Limits of single steps never add up beyond it.
    """

    def __init__(
        self, seconds: float, timeout: float | None = None, ends_at: float | None = None
    ) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds
        if timeout is not None and ends_at is not None and ends_at < self._end:
            self._seconds, self._end = timeout, ends_at

    def left(self, most: float = float("inf")) -> float:
        """Seconds for the next step; raises UrlFailed if none are left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise UrlFailed(f"the call was not done after {self._seconds:g} seconds")
        return min(left, most)


# Answers as text: for the result, and without secrets for the output.

EXCERPT = 2_000
SHORTEST_SECRET = 4
# Only codecs that are safe to use on foreign data; any other charset is read as UTF-8.
_CHARSETS = {"iso-8859-1": "latin-1", "latin-1": "latin-1", "windows-1252": "cp1252"}
_CHARSET = re.compile(r"charset=\"?([\w-]{1,20})")


def as_result(answer: UrlResponse) -> dict[str, Any]:
    """The result of a successful call."""
    return {
        "status": answer.status,
        "body": _text(answer),
        "truncated": answer.truncated,
    }


def excerpt(answer: UrlResponse, request: Request) -> str:
    """The beginning of an answer's body for the output of a failed job, without the secrets of
    the answer and of the request, which servers like to repeat.
    """
    text = _redacted(_text(answer))
    for secret in _secrets(request):
        text = text.replace(secret, HIDDEN)
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]} …"


def _redacted(text: str) -> str:
    try:
        return json.dumps(redacted(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return scrubbed(text[: 4 * EXCERPT])


def _secrets(request: Request) -> list[str]:
    """Values of sensitive headers and each of their words, the longest first."""
    sensitive = [value for name, value in request.headers.items() if is_sensitive(name)]
    words = {word for value in sensitive for word in (value, *value.split())}
    return sorted((word for word in words if len(word) >= SHORTEST_SECRET), key=len, reverse=True)


def _text(answer: UrlResponse) -> str:
    named = _CHARSET.search(answer.content_type)
    charset = _CHARSETS.get(named[1].lower() if named else "", "utf-8")
    return answer.body.decode(charset, "replace")
