"""Whose keys they are: of the site that used a prefix first, and of no other."""

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
"""So often a process compares again: the server may have come back empty, or be another one."""
UNKNOWN_SECONDS = 15.0
"""So long nothing is compared after it could not be: in a cluster each try may hang."""
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
        """A connection was lost: what answers next may be another server, or an empty one."""
        self._compare_at = min(self._compare_at, self._not_before)

    def owner(self, client: Any) -> str | None:
        """The site that has the keys; None as long as there is none."""
        told = client.get(self._layout.site)
        return None if told is None else told.decode("utf-8", "replace")

    def _compare(self, client: Any) -> None:
        site = get_settings().site
        try:
            owner = self.owner(client) or self._take(client, site)
        except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
            if _is_for_good(error):
                owner = site
                self._not_before = time.monotonic() + COMPARED_SECONDS
            elif self._layout.clustered:
                # Queues whose own servers are well go on while that of this one key is away.
                self._compare_at = self._not_before = time.monotonic() + UNKNOWN_SECONDS
                return
            else:
                raise
        if owner != site:
            raise PrefixInUse(self.trouble(owner))
        self._compare_at = time.monotonic() + COMPARED_SECONDS

    def _take(self, client: Any, site: str) -> str:
        """Whose the keys are now. A server that is full or a replica stores nothing, but serves."""
        try:
            told = client.set(self._layout.site, site, nx=True, get=True)
        except exceptions.ResponseError:
            return site
        return site if told is None else str(told.decode("utf-8", "replace"))

    def trouble(self, owner: str) -> str:
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
    """Whether the key is of another type or may not be read, and the server serves all the same.

    One that is busy, or has lost its master, says so of every key, and has not been compared.
    """
    answered = isinstance(error, exceptions.ResponseError)
    return answered and not isinstance(translated(error), StoreUnavailable)
