"""The names of keys. All keys of a queue, and only they, share a hash slot."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

LAYOUT = 3
"""Part of every key, so that a new layout never touches the keys of an old one."""


class Layout(NamedTuple):
    """The names of a backend's keys.

    ``clustered``: a script reaches the keys of one queue only, so what jobs share (unique_key,
    concurrency_key, single_instance, idempotency_key) counts within a queue.
    """

    prefix: str
    clustered: bool

    def base(self, queue: str) -> str:
        """The prefix of all keys of a queue."""
        return f"{{{self.prefix}:{queue}}}:{LAYOUT}:"

    def guards(self, queue: str) -> str:
        """The prefix of the keys that jobs of a queue share with others.

        In a cluster it differs from the base, and neither is ever a key itself. So a script
        names two keys that do not exist, and while a slot moves to another server, the old server
        answers ASK and the new one TRYAGAIN: no script runs where only half of the keys are.
        """
        if self.clustered:
            return f"{self.base(queue)}shared:"
        return f"{{{self.prefix}}}:{LAYOUT}:"

    def keys(self, *queues: str) -> tuple[str, ...]:
        """The KEYS of a script on queues."""
        return _keys(self, queues)

    @property
    def known_queues(self) -> str:
        """The set of the names of all queues."""
        return f"{{{self.prefix}}}:{LAYOUT}:queues"

    @property
    def site(self) -> str:
        """The site whose keys these are."""
        return f"{{{self.prefix}}}:{LAYOUT}:site"

    @property
    def breakers(self) -> str:
        """The hash of all circuit breakers that have counted something."""
        return f"{{{self.prefix}}}:{LAYOUT}:breakers"

    def groups(self, queues: list[str]) -> list[list[str]]:
        """The queues, in groups that one script can reach."""
        if self.clustered:
            return [[queue] for queue in queues]
        return [queues] if queues else []


@lru_cache(maxsize=256)
def _keys(layout: Layout, queues: tuple[str, ...]) -> tuple[str, ...]:
    return (layout.guards(queues[0]), *map(layout.base, queues))
