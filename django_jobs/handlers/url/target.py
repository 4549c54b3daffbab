"""The one parser of URLs. What it returns is what is checked, and all that is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from django_jobs.exceptions import UrlRefused
from django_jobs.handlers.url.host import Host

MAX_URL = 2048
MAX_PORT = 65_535
PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?P<port>:.*)?")
_PORT = re.compile(r":([1-9][0-9]{0,4})")
_IN_PATH = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
_PATH = re.compile(rf"(?:{_IN_PATH})*")
_QUERY = re.compile(rf"(?:{_IN_PATH}|\?)*")
_WANDERS = ". \t\x00"


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
        raise UrlRefused("the url's path holds '.' or '..', which would lead elsewhere")
    return text or "/"


def _query(text: str | None) -> str | None:
    if text is not None and not _QUERY.fullmatch(text):
        raise UrlRefused("the url's query holds a character that must be percent-encoded")
    return text


def _wanders(path: str) -> bool:
    """Whether some server, however often it decodes, could read a dot segment in the path."""
    decoded, again = path, unquote(path, "latin-1")
    while again != decoded:
        decoded, again = again, unquote(again, "latin-1")
    segments = decoded.replace("\\", "/").split("/")
    names = [segment.partition(";")[0] for segment in segments]
    return any(name and not name.strip(_WANDERS) for name in names)
