"""Housekeeping of a backend's queues, in short steps: its thread renews leases, too."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from django_jobs.backends.redis.store import QUEUES_AT_ONCE
from django_jobs.clock import to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_jobs.backends.redis.claim import Claims
    from django_jobs.backends.redis.dead_letters import DeadLetterRelay
    from django_jobs.backends.redis.store import RedisStore

CLEAN_UP_SECONDS = 1.0
"""The time for one cleanup, after which it begins no queue or page. The next one goes on there."""
UNUSED_SECONDS = 86_400.0
"""How long the name of an empty queue is kept: idle workers may wait on it."""
HOLDERS_AT_ONCE = 100
"""For how many holders of keys one cleanup checks whether any queue has a lease of them."""


class _Due(NamedTuple):
    """A queue that has something to clean up."""

    queue: str
    has_blocked: int
    has_dead: int


class Housekeeper:
    """Reaps and cleans up the queues of one backend."""

    def __init__(self, store: RedisStore, claims: Claims, relay: DeadLetterRelay) -> None:
        self._store = store
        self._claims = claims
        self._relay = relay
        self._last = ""

    def reap(self, queue: str | None, limit: int) -> int:
        """See ``Backend.reap_expired``."""
        reaped = 0

        def work(name: str) -> int:
            return self._claims.reap(name, limit - reaped) if reaped < limit else 0

        for count in self._alone(self._lost() if queue is None else [queue], work):
            reaped += count
        return reaped

    def _lost(self) -> Sequence[str]:
        """The queues that have an expired lease."""
        names = self._store.queues()
        if self._store.layout.clustered:  # a script reaches one queue, and could as well reap it
            return names

        def work(some: list[str]) -> list[str]:
            return [some[int(number) - 1] for number in self._store.run_on("lostqueues", some, [])]

        nothing: list[str] = []
        parts = self._store.by_group(names, work, none=nothing)
        return [name for part in parts for name in part]

    def clean_up(self, limit: int) -> int:
        """See ``HasHousekeeping.clean_up``."""
        until = time.monotonic() + CLEAN_UP_SECONDS
        names, nothing = self._store.queues(), list[_Due]()
        parts = self._store.by_group(names, self._look, none=nothing)
        due = self._in_turn([item for part in parts for item in part])
        done, seen = 0, set[tuple[bytes, bytes]]()

        def work(queue: str) -> int:
            if self._last and (done >= limit or time.monotonic() >= until):
                return 0
            self._last = queue
            return self._clean_up(queue, limit, seen)

        self._last = ""  # the first queue is cleaned up in any case
        for count in self._alone([item.queue for item in due], work):
            done += count
        dead = [item.queue for item in due if item.has_dead]
        return done + self._relay.carry(dead, limit, until) + self._relay.sweep(limit)

    def _look(self, queues: list[str]) -> list[_Due]:
        """The queues that have something to clean up. Empty queues are forgotten."""
        unused = to_microseconds(UNUSED_SECONDS)
        due, gone = self._store.run_on("cleanupqueues", queues, [unused])
        self._store.forget(queues[int(number) - 1] for number in gone)
        numbers, *flags = (list(map(int, due[first::3])) for first in range(3))
        return [_Due(queues[n - 1], *rest) for n, *rest in zip(numbers, *flags, strict=True)]

    def _in_turn(self, due: list[_Due]) -> list[_Due]:
        """Rotate the queues to begin after the last one cleaned up."""
        turn = bisect_right(due, self._last, key=lambda item: item.queue)
        return [*due[turn:], *due[:turn]]

    def _clean_up(self, queue: str, limit: int, seen: set[tuple[bytes, bytes]]) -> int:
        done, *named = self._store.run("cleanup", queue, [limit, HOLDERS_AT_ONCE - len(seen)])
        holders = set(zip(named[::2], named[1::2], strict=True)) - seen
        if holders:
            self._free_lost(queue, holders)
            seen |= holders
        return int(done)

    def _free_lost(self, queue: str, holders: set[tuple[bytes, bytes]]) -> None:
        """Free the places of keys whose holders are leased in no queue.

        A shared key may be held by a lease in any queue. The names of queues are read after the
        holders, because a holder may be in a new queue.
        """
        clustered = self._store.layout.clustered
        others = [] if clustered else [name for name in self._store.queues() if name != queue]
        ids = sorted({job_id for _, job_id in holders})
        leased = self._leased(others, ids)
        lost = [text for holder in holders if holder[1] not in leased for text in holder]
        if lost:  # rare; a script must not look for many jobs in many queues
            self._store.run_on("unheld", [queue, *others], lost)

    def _leased(self, queues: Sequence[str], ids: list[bytes]) -> set[bytes]:
        """The jobs that are leased in one of the queues. It uses no script."""
        leased: set[bytes] = set()
        for at in range(0, len(queues), QUEUES_AT_ONCE):
            for scores in self._store.each(
                queues[at : at + QUEUES_AT_ONCE],
                lambda pipe, base: pipe.zmscore(base + "leased", ids),
            ):
                pairs = zip(ids, scores or (), strict=False)
                leased.update(job_id for job_id, score in pairs if score is not None)
        return leased

    def _alone(self, queues: Sequence[str], work: Callable[[str], int]) -> Iterator[int]:
        """Work on each queue by itself; 0 for a queue that is unreadable."""

        def guarded(group: list[str]) -> list[int]:
            return self._store.past_unreadable(group, lambda some: work(*some), none=0)

        return self._store.past_away([[queue] for queue in queues], guarded)
