"""The only parser of URLs. Its result is what is checked, and all that is sent."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING
from urllib.parse import unquote

from django_jobs.exceptions import UrlRefused

if TYPE_CHECKING:
    from collections.abc import Callable


# Hosts, in one canonical form that is compared, resolved and connected to.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_NAME = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# Parts of an IPv4 address as C libraries read them: decimal, octal or hexadecimal.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Letters beyond ASCII are left alone: lower() makes ASCII of some (the Kelvin sign).
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
        """The host of a URL; raises UrlRefused for any spelling that parsers could read
        differently.
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
    """The name in DNS. A Unicode name must survive the round trip through IDNA: that excludes
    look-alike digits and dots, and letters about which the IDNA standards disagree.
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


MAX_URL = 2048
MAX_PORT = 65_535
PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?P<port>:.*)?")
_PORT = re.compile(r":([1-9][0-9]{0,4})")
_IN_PATH = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
_PATH = re.compile(rf"(?:{_IN_PATH})*")
_QUERY = re.compile(rf"(?:{_IN_PATH}|\?)*")
# Overlong UTF-8, which careless decoders accept, some of them with any second byte.
_OVERLONG = re.compile(
    r"[\xc0\xc1].|(?:\xe0|\xf0\x80|\xf8\x80{2}|\xfc\x80{3})[\x80\x81][\x80-\xbf]", re.DOTALL
)
_IN_SCRIPTS = re.compile("%u([0-9A-Fa-f]{4})")
# Characters that some servers take for a slash, besides those that NFKC maps to one.
_SLASHES = str.maketrans("\\\u2044\u2215\u2216\u29f5\u29f8\u29f9", "///////")
_DOTS = str.maketrans("\u3002", ".")
_UNSEEN = r"\x00-\x20\x7f-\xa0\xad\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufe00-\ufe0f\ufeff"
# A server may drop invisible characters, or stop reading at a mark or a control character.
_WANDERS = re.compile(rf"[{_UNSEEN}]+|[{_UNSEEN}]*\.[.{_UNSEEN}]*(?:[;#?\x00-\x1f].*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL. The text it was parsed from is not kept, so it cannot be sent."""

    scheme: str
    host: Host
    port: int
    path: str
    query: str | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host.name, self.port

    @property
    def authority(self) -> str:
        """The Host header: the port is named where it is not the usual one."""
        usual = self.port == PORTS[self.scheme]
        return self.host.in_url if usual else f"{self.host.in_url}:{self.port}"

    @property
    def in_request(self) -> str:
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def url(self) -> str:
        """The whole URL, to resolve a redirect against. It may hold secrets."""
        return f"{self}{self.in_request}"

    def __str__(self) -> str:
        """For messages. Paths and queries may hold secrets (a webhook's often do)."""
        return f"{self.scheme}://{self.authority}"

    @classmethod
    def parse(cls, url: str) -> Target:
        """Parse a URL; raises UrlRefused, which never quotes it."""
        if len(url) > MAX_URL:
            raise UrlRefused(f"the url is longer than {MAX_URL:,} characters")
        scheme, separator, rest = url.partition("://")
        scheme = scheme.lower()
        if not separator or scheme not in PORTS:
            raise UrlRefused("the url does not begin with http:// or https://")
        authority, path, query = _divided(rest)
        if "@" in authority:
            raise UrlRefused("the url holds a user name; send credentials in a header")
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            raise UrlRefused("the url has no host that could be a name or an address")
        return cls(
            scheme=scheme,
            host=Host.parse(match["host"]),
            port=_port(match["port"], scheme),
            path=_path(path),
            query=_query(query),
        )


def _divided(rest: str) -> tuple[str, str, str | None]:
    """Split the rest after the scheme into authority, path and query."""
    if "#" in rest:
        raise UrlRefused("the url has a fragment ('#'), which is never sent; leave it out")
    before, mark, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    return authority, slash + path, query if mark else None


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return PORTS[scheme]
    match = _PORT.fullmatch(text)
    if match is None or int(match[1]) > MAX_PORT:
        raise UrlRefused(f"the url's port is not a number from 1 to {MAX_PORT}")
    return int(match[1])


def _path(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise UrlRefused("the url's path holds a character that must be percent-encoded")
    if _wanders(text):
        raise UrlRefused(
            "the url's path holds '.' or '..', which would lead elsewhere, or between two slashes "
            "only what a server may read as that (blanks, unseen characters, signs like '…')"
        )
    return text or "/"


def _query(text: str | None) -> str | None:
    if text is not None and not _QUERY.fullmatch(text):
        raise UrlRefused("the url's query holds a character that must be percent-encoded")
    return text


def _wanders(path: str) -> bool:
    """Whether a server could read a dot segment in the path, however often it decodes."""
    return any(_holds_dots(_read(path, decoded)) for decoded in (_decoded, _decoded_carelessly))


def _read(path: str, decoded: Callable[[str], str]) -> str:
    """Decode until nothing changes. The result holds bytes as Latin-1 characters."""
    before, after = path, decoded(path)
    while after != before:
        before, after = after, decoded(after)
    return after


def _holds_dots(read: str) -> bool:
    text = unicodedata.normalize("NFKC", read.encode("latin-1").decode("utf-8", "replace"))
    segments = text.translate(_SLASHES).translate(_DOTS).split("/")
    return any(map(_WANDERS.fullmatch, segments))


def _decoded(text: str) -> str:
    return _IN_SCRIPTS.sub(_as_bytes, unquote(text, "latin-1"))


def _decoded_carelessly(text: str) -> str:
    """As a careless server decodes. It may swallow a slash, so both readings are checked."""
    return _OVERLONG.sub(_in_short, _decoded(text))


def _in_short(match: re.Match[str]) -> str:
    """The ASCII character of an overlong sequence: its last seven bits."""
    before, last = map(ord, match[0][-2:])
    return chr((before & 1) << 6 | last & 0x3F)


def _as_bytes(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)).encode("utf-8", "surrogatepass").decode("latin-1")
