"""The names of keys. All keys of a queue, and only they, share a hash slot."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

LAYOUT = 3
"""Part of every key: a layout that changes leaves the keys of the old one alone."""


class Layout(NamedTuple):
    """Where a backend keeps what.

    ``clustered``: then a script reaches the keys of one queue, and what jobs share
    (unique_key, concurrency_key, single_instance, idempotency_key) counts within a queue.
    """

    prefix: str
    clustered: bool

    def base(self, queue: str) -> str:
        """The beginning of all keys of a queue."""
        return f"{{{self.prefix}:{queue}}}:{LAYOUT}:"

    def guards(self, queue: str) -> str:
        """The beginning of the keys that jobs of a queue share with others.

        In a cluster it is another than the base, and neither is ever a key itself. So a script
        names two keys that are not there, and a slot that moves to another server answers ASK
        on the old one and TRYAGAIN on the new one: no script runs where half of the keys are.
        """
        if self.clustered:
            return f"{self.base(queue)}shared:"
        return f"{{{self.prefix}}}:{LAYOUT}:"

    def keys(self, *queues: str) -> tuple[str, ...]:
        """What a script on queues is told as its keys."""
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
        """The queues that one script may be asked about together."""
        if self.clustered:
            return [[queue] for queue in queues]
        return [queues] if queues else []


@lru_cache(maxsize=256)
def _keys(layout: Layout, queues: tuple[str, ...]) -> tuple[str, ...]:
    return (layout.guards(queues[0]), *map(layout.base, queues))
