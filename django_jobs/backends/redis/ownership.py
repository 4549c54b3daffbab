"""Ownership of a prefix: it belongs to the first site that used it, and to no other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redis import exceptions

from django_jobs.backends.redis.connection import translated
from django_jobs.conf import get_settings
from django_jobs.exceptions import PrefixInUse, StoreUnavailable

if TYPE_CHECKING:
    from django_jobs.backends.redis.keys import Layout

COMPARED_SECONDS = 60.0
"""How often a process compares again: the server may have come back empty, or be another one."""
UNKNOWN_SECONDS = 15.0
"""How long to wait after a comparison failed: in a cluster each try may hang."""
SHOWN = 100


class Ownership:
    """Compares the site of this process with the one that a key of the server names."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._compare_at = self._not_before = float("-inf")

    def confirm(self, client: Any) -> None:
        """Raise PrefixInUse where the keys are another site's.

        The first site to use them becomes their owner. It costs a round trip at the first use
        of the server, after a connection was lost, and once a minute.
        """
        if time.monotonic() >= self._compare_at:
            self._compare(client)

    def compare_again(self) -> None:
        """Compare at the next use: after a lost connection the server may be another, or empty."""
        self._compare_at = min(self._compare_at, self._not_before)

    def owner(self, client: Any) -> str | None:
        """The site that owns the keys; None while no site does."""
        raw = client.get(self._layout.site)
        return None if raw is None else raw.decode("utf-8", "replace")

    def _compare(self, client: Any) -> None:
        site = get_settings().site
        try:
            owner = self.owner(client) or self._take(client, site)
        except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
            if _is_for_good(error):
                owner = site
                self._not_before = time.monotonic() + COMPARED_SECONDS
            elif self._layout.clustered:
                # Only the server of this key is away: queues on other servers go on.
                self._compare_at = self._not_before = time.monotonic() + UNKNOWN_SECONDS
                return
            else:
                raise
        if owner != site:
            raise PrefixInUse(self.problem(owner))
        self._compare_at = time.monotonic() + COMPARED_SECONDS

    def _take(self, client: Any, site: str) -> str:
        """Claim the keys; returns their owner. A full server or a replica only serves."""
        try:
            owner = client.set(self._layout.site, site, nx=True, get=True)
        except exceptions.ResponseError:
            return site
        return site if owner is None else str(owner.decode("utf-8", "replace"))

    def problem(self, owner: str) -> str:
        """What is wrong where the keys are another site's, and the ways out."""
        site = get_settings().site
        return (
            f"the keys with the prefix {self._layout.prefix!r} on this Redis are in use by "
            f"the site {owner[:SHOWN]!r}, and this one is {site!r}: give it a prefix of its own "
            "(OPTIONS['PREFIX']), or set SITE back to that name; where the site was renamed and "
            "nothing runs under the old name, hand the keys over: "
            f"redis-cli DEL '{self._layout.site}'"
        )


def _is_for_good(error: Exception) -> bool:
    """Whether the key has another type or may not be read, on a server that serves otherwise.

    A server that is busy or has lost its master answers so for every key: that is an outage.
    """
    answered = isinstance(error, exceptions.ResponseError)
    return answered and not isinstance(translated(error), StoreUnavailable)
