"""Deleting results before their time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_jobs.backends.redis.store import Store

LOOKED_AT = 100
"""In one step: each of them is read as a whole, and may be large."""


def purge_results(
    store: Store, older_than: int, queue: str | None, *, dry_run: bool
) -> Iterator[tuple[int, int]]:
    """See ``Backend.purge_results``."""
    for name in store.queues() if queue is None else [queue]:
        place = "0"
        while True:
            told = store.run("purge", name, [older_than, place, LOOKED_AT, "" if dry_run else "1"])
            place, results, runs = told[0].decode(), int(told[1]), int(told[2])
            if results:
                yield results, runs
            if place == "0":
                break
