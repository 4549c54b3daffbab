"""Resolve names, and decide which addresses may be called.

The decision depends on the address alone. Public networks are listed here because ``is_global``
of ``ipaddress`` is true for multicast, for addresses that embed a private IPv4 address, and for
others that lead inwards, and because it changes between versions of Python. It is checked in
addition.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING

from django_jobs.exceptions import UrlFailed, UrlRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_jobs.handlers.url.allow_list import UrlRule
    from django_jobs.handlers.url.http import Deadline
    from django_jobs.handlers.url.url import Address, Target


Network = IPv4Network | IPv6Network

_CLOSED_IPV4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 reaches the machine itself
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT, and metadata of some clouds
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the inside of Azure, though a public address
        "169.254.0.0/16",  # link-local, with the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, and metadata of some clouds
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# Outside of it are loopback, private, link-local and multicast addresses, and those that embed
# an IPv4 address: mapped, compatible, translated.
_OPEN_IPV6 = IPv6Network("2000::/3")
_CLOSED_IPV6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # 6bone
        "3fff::/20",  # documentation
    )
)
# Networks without IPv4 reach IPv4 hosts by this prefix; the embedded address decides.
_NAT64 = IPv6Network("64:ff9b::/96")
# ISATAP writes 5efe before an IPv4 address, in any network.
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})

MAY_BE_OPENED: tuple[Network, ...] = (
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("::1/128"),
    IPv6Network("fc00::/7"),
)
"""Networks that PRIVATE may open: a site may run its own services there."""

_METADATA: tuple[Network, ...] = (
    IPv4Network("100.100.100.200/32"),  # Alibaba
    IPv6Network("fd00:ec2::/32"),  # AWS
    IPv6Network("fd20:ce::/32"),  # Google
)
"""Within networks that PRIVATE may open, but they hand out credentials: never called."""


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, in whatever notation."""
    if isinstance(address, IPv4Address):
        return address.is_global and not _within(address, _CLOSED_IPV4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address not in _OPEN_IPV6 or _within(address, _CLOSED_IPV6):
        return False
    return address.is_global and (int(address) >> 32) & 0xFFFF_FFFF not in _ISATAP


def may_be_called(address: Address, opened: Iterable[Network]) -> bool:
    """Whether a rule lets an address be called. A rule that opens networks (of those that
    ``network`` accepts) allows only these; any other rule allows the public internet.
    """
    networks = tuple(opened)
    if not networks:
        return is_public(address)
    if getattr(address, "scope_id", None) is not None or _within(address, _METADATA):
        return False
    return _within(address, networks)


def network(text: str) -> Network:
    """A network that PRIVATE may name; raises ValueError for any other."""
    parsed = ip_network(text)
    if not any(_contains(wide, parsed) for wide in MAY_BE_OPENED):
        raise ValueError(f"{parsed} is not within a private network")
    return parsed


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _contains(wide: Network, narrow: Network) -> bool:
    return narrow.network_address in wide and narrow.broadcast_address in wide


Resolve = Callable[[str], Sequence[str]]
"""Takes a name and returns its addresses as texts, or raises OSError."""

LOOKUP_SECONDS = 10.0


def lookup(name: str) -> list[str]:
    """The addresses from this machine's resolver."""
    answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(where[0]) for _family, _type, _protocol, _canonical, where in answers]


def addresses_of(
    target: Target, rule: UrlRule, resolve: Resolve, deadline: Deadline
) -> list[Address]:
    """The addresses to connect to, in the resolver's order; raises UrlRefused if any one of
    them may not be called.

    The caller connects to these alone: a second lookup could return an unchecked one.
    """
    if target.host.address is not None:
        addresses = [target.host.address]
    else:
        addresses = [_parsed(text) for text in _answer(target, resolve, deadline)]
    if not addresses:
        raise UrlFailed(f"the name of {target} has no address")
    if not all(may_be_called(address, rule.private) for address in addresses):
        # Naming the address would reveal the inside of the network.
        raise UrlRefused(f"the name of {target} leads to an address that may not be called")
    return addresses


def _parsed(text: str) -> Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise UrlFailed("the resolver answered with something that is no address") from None


def _answer(target: Target, resolve: Resolve, deadline: Deadline) -> Sequence[str]:
    """The resolver's answer. It has no time limit of its own, so it runs in a thread."""
    answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolve(target.host.name))
        except Exception as error:  # noqa: BLE001 - passed to the waiting thread
            answers.put(error)

    threading.Thread(target=ask, name="django_jobs-lookup", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left(LOOKUP_SECONDS))
    except queue.Empty:
        raise UrlFailed(f"the name of {target} was not resolved in time") from None
    if isinstance(answer, Exception):
        raise UrlFailed(f"the name of {target} cannot be resolved") from None
    return answer
