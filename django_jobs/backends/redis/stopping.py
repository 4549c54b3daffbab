"""Asking jobs that run to stop: a note for whoever holds the lease, or the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.backends.redis.store import Store


def asked_to_stop(store: Store, leases: Sequence[Lease]) -> set[str]:
    """The ids of those leases whose job is to stop."""
    by_queue: dict[str, list[str]] = {}
    for lease in leases:
        by_queue.setdefault(lease.queue, []).append(lease.id)
    names = {store.layout.base(queue): ids for queue, ids in by_queue.items()}
    told = store.each(
        list(by_queue), lambda pipe, base: pipe.smismember(base + "stops", names[base])
    )
    return {
        job_id
        for ids, answers in zip(by_queue.values(), told, strict=True)
        for job_id, asked in zip(ids, answers, strict=True)
        if asked
    }
