"""Which addresses may be called. The answer depends on the address alone.

What is public is written out here rather than asked of ``ipaddress``: its ``is_global`` is
true for multicast, for addresses that carry a private IPv4 one inside, and for others that
lead inwards, and changes between versions of Python. It is asked in addition.
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

    from django_jobs.handlers.url.allow_list import Rule
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
# Outside of this are loopback, private, link-local and multicast addresses, and those that
# carry an IPv4 address inside: mapped, compatible, translated.
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
# Networks without IPv4 reach the rest of the world by this prefix; what counts is inside.
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
"""Where a site may have services of its own, and PRIVATE may point."""

_METADATA: tuple[Network, ...] = (
    IPv4Network("100.100.100.200/32"),  # Alibaba
    IPv6Network("fd00:ec2::/32"),  # AWS
    IPv6Network("fd20:ce::/32"),  # Google
)
"""Lie where a site may have services, and hand out its credentials: never called."""


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, whichever way it is written."""
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
    """Whether a rule lets an address be called: one that opens networks (of those that
    ``network`` accepts), these and no other; any other rule, the public internet.
    """
    networks = tuple(opened)
    if not networks:
        return is_public(address)
    if getattr(address, "scope_id", None) is not None or _within(address, _METADATA):
        return False
    return _within(address, networks)


def network(text: str) -> Network:
    """A network that PRIVATE may name; raises ValueError for any other."""
    found = ip_network(text)
    if not any(_contains(wide, found) for wide in MAY_BE_OPENED):
        raise ValueError(f"{found} is not within a private network")
    return found


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _contains(wide: Network, narrow: Network) -> bool:
    return narrow.network_address in wide and narrow.broadcast_address in wide


# Names to addresses: one lookup per hop, every answer checked, and those very answers used.
#
# A second lookup could get another answer, which nobody has checked.


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
