"""Keeping jobs from running: those that wait are taken out, those that run are asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.backends.redis.store import Store


_WHY = "cancelled"
_CANCELLED_KEPT_MS = 86_400_000


def cancel(store: Store, queue: str | None, job_id: str, remembered_ms: int) -> bool:
    """Take out a job that waits in a queue, and keep for a day what it was."""
    if queue is None:
        return False
    told = [job_id, _WHY, _CANCELLED_KEPT_MS, remembered_ms]
    return bool(store.run("cancel", queue, told))


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
        for job_id, asked in zip(ids, answers or [0] * len(ids), strict=True)
        if asked
    }
