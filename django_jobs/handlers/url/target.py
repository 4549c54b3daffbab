"""The one parser of URLs. What it returns is what is checked, and all that is sent."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from django_jobs.exceptions import UrlRefused
from django_jobs.handlers.url.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_URL = 2048
MAX_PORT = 65_535
PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?P<port>:.*)?")
_PORT = re.compile(r":([1-9][0-9]{0,4})")
_IN_PATH = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
_PATH = re.compile(rf"(?:{_IN_PATH})*")
_QUERY = re.compile(rf"(?:{_IN_PATH}|\?)*")
# UTF-8 of more bytes than needed, which careless decoders read all the same, some of them
# whatever the second byte is.
_OVERLONG = re.compile(
    r"[\xc0\xc1].|(?:\xe0|\xf0\x80|\xf8\x80{2}|\xfc\x80{3})[\x80\x81][\x80-\xbf]", re.DOTALL
)
_IN_SCRIPTS = re.compile("%u([0-9A-Fa-f]{4})")
# What some servers take for a slash beside what Unicode says is one.
_SLASHES = str.maketrans("\\\u2044\u2215\u2216\u29f5\u29f8\u29f9", "///////")
_DOTS = str.maketrans("\u3002", ".")
_UNSEEN = r"\x00-\x20\x7f-\xa0\xad\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufe00-\ufe0f\ufeff"
# A server may drop what is not seen, or read no further than a mark or a control character.
_WANDERS = re.compile(rf"[{_UNSEEN}]+|[{_UNSEEN}]*\.[.{_UNSEEN}]*(?:[;#?\x00-\x1f].*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes, in parts. There is no way back to the text it was read from."""

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
        """The whole address, to resolve a redirect against. It may hold secrets."""
        return f"{self}{self.in_request}"

    def __str__(self) -> str:
        """For messages. Paths and queries may hold secrets (a webhook's often do)."""
        return f"{self.scheme}://{self.authority}"

    @classmethod
    def parse(cls, url: str) -> Target:
        """The parts of a URL; raises UrlRefused, which never quotes it."""
        if len(url) > MAX_URL:
            raise UrlRefused(f"the url is longer than {MAX_URL:,} characters")
        scheme, separator, rest = url.partition("://")
        scheme = scheme.lower()
        if not separator or scheme not in PORTS:
            raise UrlRefused("the url does not begin with http:// or https://")
        authority, path, query = _divided(rest)
        if "@" in authority:
            raise UrlRefused("the url holds a user name; send credentials in a header")
        found = _AUTHORITY.fullmatch(authority)
        if found is None:
            raise UrlRefused("the url has no host that could be a name or an address")
        return cls(
            scheme=scheme,
            host=Host.parse(found["host"]),
            port=_port(found["port"], scheme),
            path=_path(path),
            query=_query(query),
        )


def _divided(rest: str) -> tuple[str, str, str | None]:
    """What follows the scheme, as authority, path and query."""
    if "#" in rest:
        raise UrlRefused("the url has a fragment ('#'), which is never sent; leave it out")
    before, mark, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    return authority, slash + path, query if mark else None


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return PORTS[scheme]
    found = _PORT.fullmatch(text)
    if found is None or int(found[1]) > MAX_PORT:
        raise UrlRefused(f"the url's port is not a number from 1 to {MAX_PORT}")
    return int(found[1])


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
    """Whether some server, however often it decodes, could read a dot segment in the path."""
    return any(_holds_dots(_read(path, decoded)) for decoded in (_decoded, _decoded_carelessly))


def _read(path: str, decoded: Callable[[str], str]) -> str:
    """What is left when nothing more can be decoded: bytes, which stand as characters."""
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
    """May swallow a slash that others see, and so comes beside the other reading."""
    return _OVERLONG.sub(_in_short, _decoded(text))


def _in_short(found: re.Match[str]) -> str:
    """The ASCII character of a sequence that is too long for it: its last seven bits."""
    before, last = map(ord, found[0][-2:])
    return chr((before & 1) << 6 | last & 0x3F)


def _as_bytes(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)).encode("utf-8", "surrogatepass").decode("latin-1")
