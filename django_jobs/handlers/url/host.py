"""Which computer a URL means, in the one form that is compared, asked for and connected to."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from django_jobs.exceptions import UrlRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# What C libraries take for a part of an IPv4 address: decimal, octal or hexadecimal.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Letters beyond ASCII are left alone: some of them (the Kelvin sign) become ASCII ones.
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_IPV6 = re.compile(r"\[([0-9a-fA-F:.]+)\]")


@dataclass(frozen=True, slots=True)
class Host:
    """A name in lower-case ASCII, or an address in its one canonical spelling."""

    name: str
    address: Address | None = None

    @property
    def in_url(self) -> str:
        """As it stands in a URL and in the Host header."""
        return f"[{self.name}]" if ":" in self.name else self.name

    @classmethod
    def parse(cls, text: str) -> Host:
        """The host of a URL; raises UrlRefused for every spelling that two readers may read
        in two ways.
        """
        if text.startswith("["):
            return _ipv6(text)
        name = _ascii(text.translate(_LOWER)).removesuffix(".")
        labels = name.split(".")
        if len(name) > MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
            raise UrlRefused("the url has no host that could be a name or an address")
        if _NUMBER.fullmatch(labels[-1]):
            return _ipv4(name)
        return cls(name)


def _ascii(text: str) -> str:
    """A name as DNS knows it. A Unicode name has to be in the form that it would come back in:
    no look-alike digits or dots, no letters that the standards of IDNA disagree about.
    """
    if text.isascii():
        return text
    with suppress(UnicodeError):
        encoded = text.encode("idna")
        if encoded.decode("idna") == text:
            return encoded.decode("ascii")
    raise UrlRefused("the url's host is not a plain Unicode name; write it with xn-- instead")


def _ipv4(name: str) -> Host:
    try:
        address = ipaddress.IPv4Address(name)
    except ValueError:
        raise UrlRefused(
            "the url's host is a number, but not four decimal numbers with dots between"
        ) from None
    return Host(str(address), address)


def _ipv6(text: str) -> Host:
    inside = _IPV6.fullmatch(text)
    if inside is not None:
        with suppress(ValueError):
            address = ipaddress.IPv6Address(inside[1])
            return Host(str(address), address)
    raise UrlRefused("the url's host is in brackets, but no IPv6 address")
