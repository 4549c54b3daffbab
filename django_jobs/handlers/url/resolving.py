"""Names to addresses: one lookup per hop, every answer checked, and those very answers used.

A second lookup could get another answer, which nobody has checked.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_jobs.exceptions import UrlFailed, UrlRefused
from django_jobs.handlers.url.addresses import may_be_called

if TYPE_CHECKING:
    from django_jobs.handlers.url.deadline import Deadline
    from django_jobs.handlers.url.host import Address
    from django_jobs.handlers.url.rules import Rule
    from django_jobs.handlers.url.target import Target

Resolve = Callable[[str], Sequence[str]]
"""Takes a name and returns its addresses as texts, or raises OSError."""

LOOKUP_SECONDS = 10.0


def lookup(name: str) -> list[str]:
    """The addresses that this machine's resolver gives."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(where[0]) for _family, _type, _protocol, _canonical, where in found]


def addresses_of(target: Target, rule: Rule, resolve: Resolve, deadline: Deadline) -> list[Address]:
    """Where to connect to, in the resolver's order; raises UrlRefused when a single one of the
    addresses may not be called.
    """
    if target.host.address is not None:
        addresses = [target.host.address]
    else:
        addresses = [_parsed(text) for text in _answer(target, resolve, deadline)]
    if not addresses:
        raise UrlFailed(f"the name of {target} has no address")
    if not all(may_be_called(address, rule.private) for address in addresses):
        # Which address it is says how the network looks inside.
        raise UrlRefused(f"the name of {target} leads to an address that may not be called")
    return addresses


def _parsed(text: str) -> Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise UrlFailed("the resolver answered with something that is no address") from None


def _answer(target: Target, resolve: Resolve, deadline: Deadline) -> Sequence[str]:
    """What the resolver says. It knows no time limit, so that it is asked in a thread."""
    answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolve(target.host.name))
        except Exception as error:  # noqa: BLE001 - told to the thread that waits
            answers.put(error)

    threading.Thread(target=ask, name="django_jobs-lookup", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left(LOOKUP_SECONDS))
    except queue.Empty:
        raise UrlFailed(f"the name of {target} was not resolved in time") from None
    if isinstance(answer, Exception):
        raise UrlFailed(f"the name of {target} cannot be resolved") from None
    return answer
