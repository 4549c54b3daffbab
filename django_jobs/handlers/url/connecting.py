"""A connection to a checked address, on which every step ends with the call's deadline.

No proxy is looked for: a proxy would resolve the name again, by itself.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING

from django_jobs.exceptions import UrlFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import WriteableBuffer

    from django_jobs.handlers.url.deadline import Deadline
    from django_jobs.handlers.url.host import Address
    from django_jobs.handlers.url.rules import Rule
    from django_jobs.handlers.url.target import Target

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
MAX_TRIES = 4


def connected(
    target: Target, rule: Rule, addresses: Sequence[Address], deadline: Deadline
) -> socket.socket:
    """A socket to the target, with TLS where its scheme says so; raises UrlFailed, OSError."""
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
    told = ""
    for address in addresses[:MAX_TRIES]:
        try:
            return _to(address, target.port, deadline)
        except OSError as error:
            told = type(error).__name__
    raise UrlFailed(f"{target} cannot be reached ({told})")


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
    """Raise UrlFailed unless the other end has the address that was checked."""
    if ipaddress.ip_address(sock.getpeername()[0]) != address:
        raise UrlFailed("the connection leads elsewhere than to the address that was checked")


class Wire:
    """What ``http.client`` takes for a socket. Reads and writes end with the deadline, and
    ``allowance`` is how many bytes may still come in.
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
        """The socket belongs to whoever opened it."""

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
