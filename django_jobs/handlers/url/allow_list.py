"""ALLOWED_URLS as rules. Without a rule there is no request, and an invalid rule allows nothing."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from django_jobs.exceptions import ConfigurationError, UrlRefused
from django_jobs.handlers.url.addresses import may_be_called, network
from django_jobs.handlers.url.request import METHODS, is_name, is_ours
from django_jobs.handlers.url.url import Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_jobs.conf import JobsSettings, UrlEntry
    from django_jobs.handlers.url.addresses import Network
    from django_jobs.handlers.url.request import Request
    from django_jobs.handlers.url.url import Host

ALWAYS_ALLOWED = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers that any payload may set; an entry names further ones."""

_ANY_HOST = re.compile(r"(https?)://\*(?=[:/])", re.IGNORECASE)
_STAND_IN = r"\1://any.invalid"


class WrongEntry(ConfigurationError):
    """An entry of ALLOWED_URLS is invalid: ``key`` names the part, ``hint`` the cure."""

    def __init__(self, key: str, what: str, hint: str) -> None:
        super().__init__(f"{what}. {hint}")
        self.key, self.what, self.hint = key, what, hint


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlRule:
    """One entry of ALLOWED_URLS, parsed. A ``host`` of None allows any host, ``beneath`` any
    path that begins with ``path``.
    """

    scheme: str
    host: Host | None
    port: int
    path: str
    beneath: bool
    methods: frozenset[str]
    headers: frozenset[str]
    private: tuple[Network, ...]
    max_bytes: int
    redirects: int
    timeout: float
    ca_file: str | None

    @classmethod
    def of(cls, entry: UrlEntry) -> UrlRule:
        """Parse an entry; raises WrongEntry."""
        target, any_host, beneath = _parsed(entry.url)
        private = _networks(entry.private)
        if private and any_host:
            raise WrongEntry(
                "PRIVATE",
                "opens private networks to whatever host a job names",
                "Name the host of the internal service in URL.",
            )
        _check_ca_file(entry.ca_file)
        return cls(
            scheme=target.scheme,
            host=None if any_host else target.host,
            port=target.port,
            path=target.path,
            beneath=beneath,
            methods=_methods(entry.methods),
            headers=_header_names(entry.headers),
            private=private,
            max_bytes=entry.max_bytes,
            redirects=entry.redirects,
            timeout=entry.timeout,
            ca_file=entry.ca_file,
        )

    def covers(self, target: Target) -> bool:
        """Whether an address is within the rule's URL."""
        if (self.scheme, self.port) != (target.scheme, target.port):
            return False
        if self.host is not None and self.host != target.host:
            return False
        return target.path == self.path or (self.beneath and target.path.startswith(self.path))

    def refusal(self, request: Request) -> str:
        """Why a request within the rule's URL is refused; empty when it is not."""
        if request.method not in self.methods:
            return f"METHODS do not name {request.method}"
        for name in request.headers:
            if name.lower() not in self.headers:
                return f"HEADERS do not name {name}"
        return ""


def rule_for(request: Request, rules: Iterable[UrlRule]) -> UrlRule:
    """The first rule that allows a request; raises UrlRefused if there is none.

    This looks at the request alone and resolves no name.
    """
    refusals = []
    for rule in rules:
        if not rule.covers(request.target):
            continue
        refusal = rule.refusal(request)
        if not refusal:
            _check_literal(request.target, rule)
            return rule
        refusals.append(refusal)
    reason = f": its {refusals[0]}" if refusals else ""
    raise UrlRefused(f"no entry of ALLOWED_URLS allows this call of {request.target}{reason}")


@lru_cache(maxsize=1)
def rules_of(settings: JobsSettings) -> tuple[UrlRule, ...]:
    """All rules of a site; raises ConfigurationError, naming the entry, if one is invalid."""
    rules = []
    for index, entry in enumerate(settings.allowed_urls):
        try:
            rules.append(UrlRule.of(entry))
        except WrongEntry as wrong:
            raise ConfigurationError(f"ALLOWED_URLS[{index}] {wrong}") from None
    return tuple(rules)


def _check_literal(target: Target, rule: UrlRule) -> None:
    address = target.host.address
    if address is not None and not may_be_called(address, rule.private):
        raise UrlRefused(f"the address of {target} is not one that may be called")


def _parsed(url: str) -> tuple[Target, bool, bool]:
    """An entry's URL as (target, any host, any path beneath)."""
    beneath = url.endswith("/*")
    plain, any_host = _ANY_HOST.subn(_STAND_IN, url[:-1] if beneath else url)
    try:
        target = Target.parse(plain)
    except UrlRefused as refusal:
        raise _invalid_url(str(refusal)) from None
    if target.query is not None or "*" in target.path:
        raise _invalid_url("the url has a query, or a '*' that is not its end")
    if not plain.endswith(target.path):
        raise _invalid_url("the url has no path")
    return target, any_host > 0, beneath


def _invalid_url(why: str) -> WrongEntry:
    return WrongEntry(
        "URL",
        f"cannot be understood: {why}",
        'Write "https://host/path" for one address, "https://host/path/*" for all beneath it, '
        'or "https://*/*" for every public host.',
    )


def _methods(names: Iterable[str]) -> frozenset[str]:
    methods = frozenset(names)
    if not methods or not methods <= METHODS:
        raise WrongEntry(
            "METHODS",
            "has METHODS that are empty or hold an unknown one",
            f"Give one or more of {', '.join(sorted(METHODS))}, in capitals.",
        )
    return methods


def _header_names(names: Iterable[str]) -> frozenset[str]:
    allowed = set(ALWAYS_ALLOWED)
    for name in names:
        if not is_name(name) or is_ours(name):
            raise WrongEntry(
                "HEADERS",
                f"lets jobs set the header {name!r}, which no job may set",
                "Remove it: it is no header name, or one that the handler sets itself.",
            )
        allowed.add(name.lower())
    return frozenset(allowed)


def _networks(texts: Iterable[str]) -> tuple[Network, ...]:
    try:
        return tuple(network(text) for text in texts)
    except ValueError as error:
        raise WrongEntry(
            "PRIVATE",
            f"has PRIVATE networks that cannot be opened: {error}",
            'Give networks such as "10.1.2.0/24" or "127.0.0.1/32". Only private and loopback '
            "ones can be opened; link-local and metadata addresses never.",
        ) from None


def _check_ca_file(path: str | None) -> None:
    if path is None:
        return
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ValueError) as error:
        raise WrongEntry(
            "CA_FILE",
            f"has the CA_FILE {path!r}, which cannot be used ({type(error).__name__})",
            "Name a file with one or more certificates in PEM form.",
        ) from None
