"""``OPTIONS`` of the Redis backend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from django_jobs.backends.redis.connecting import SOCKET, TIMEOUT_SECONDS
from django_jobs.backends.redis.layout import Layout
from django_jobs.conf.model import nearest
from django_jobs.exceptions import InvalidBackend

_KNOWN = ("URL", "PREFIX", "CLUSTER", "TIMEOUT", "CLIENT", "REMEMBER_SECONDS")
REMEMBER_SECONDS = 7 * 86_400.0
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
TLS = "rediss://"
_SCHEMES = ("redis://", TLS, SOCKET)


@dataclass(frozen=True, kw_only=True)
class Options:
    """``URL``: redis, rediss or unix. ``PREFIX``: how all keys begin, of one site and backend.
    ``CLUSTER``: whether it is a Redis Cluster. ``TIMEOUT``: seconds that an answer may take.
    ``REMEMBER_SECONDS``: how long the ids of jobs that ended are remembered; 0 for not at all.
    ``CLIENT``: more for redis-py's client, such as ``ssl_ca_certs``.
    """

    url: str
    prefix: str = "django_jobs"
    cluster: bool = False
    timeout: float = TIMEOUT_SECONDS
    remember: float = REMEMBER_SECONDS
    client: dict[str, Any] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return Layout(self.prefix, self.cluster)

    @classmethod
    def read(cls, alias: str, given: Mapping[str, Any]) -> Self:
        """What an alias's OPTIONS say; raises InvalidBackend. The URL is not shown: it may
        hold a password.
        """
        where = f"BACKENDS[{alias!r}]['OPTIONS']"
        for name in given:
            if name not in _KNOWN:
                raise InvalidBackend(f"{where} has {name!r}{nearest(name, _KNOWN)}")
        url = given.get("URL")
        if not isinstance(url, str) or not url.startswith(_SCHEMES):
            raise InvalidBackend(
                f"{where}['URL'] has to be an address such as redis://localhost:6379/0, "
                "or one that begins with rediss:// or unix://"
            )
        prefix = given.get("PREFIX", cls.prefix)
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise InvalidBackend(
                f"{where}['PREFIX'] is {prefix!r}; write 1 to 64 letters, digits and ._-"
            )
        cluster = given.get("CLUSTER", False)
        if not isinstance(cluster, bool):
            raise InvalidBackend(f"{where}['CLUSTER'] is {cluster!r}; write True or False")
        if cluster and url.startswith(SOCKET):
            raise InvalidBackend(
                f"{where}['URL'] begins with {SOCKET}, and no cluster can be reached by a socket "
                "of one machine; write redis:// or rediss://, or leave CLUSTER out"
            )
        client = given.get("CLIENT", {})
        if not isinstance(client, Mapping):
            raise InvalidBackend(f"{where}['CLIENT'] is {client!r}; write a dict")
        return cls(
            url=url,
            prefix=prefix,
            cluster=cluster,
            timeout=_seconds(where, given, "TIMEOUT", cls.timeout),
            remember=_seconds(where, given, "REMEMBER_SECONDS", cls.remember),
            client=dict(client),
        )


def _seconds(where: str, given: Mapping[str, Any], name: str, default: float) -> float:
    """A number of seconds; only a memory may be of none."""
    value = given.get(name, default)
    if isinstance(value, int | float) and not isinstance(value, bool):
        least = 0 if name == "REMEMBER_SECONDS" else 1e-3
        if value >= least:
            return float(value)
    or_none = ", or 0" if name == "REMEMBER_SECONDS" else ""
    raise InvalidBackend(f"{where}[{name!r}] is {value!r}; write a number of seconds{or_none}")
