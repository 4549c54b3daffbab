"""How much of what has finished is settled in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.execution.outcome import Succeeded
from django_jobs.worker.evidence import ENDINGS, goes_back
from django_jobs.worker.returned import Encoded

if TYPE_CHECKING:
    from collections import deque

    from django_jobs.worker.pool.facts import Finished

SETTLE_AT_ONCE = 500
SETTLE_BYTES = 1 << 20  # servers refuse statements that are too long
ONE_BY_ONE = 50


def next_batch(finished: deque[Finished]) -> list[Finished]:
    """Take what to settle next: bounded in number and size, and alone what failed before."""
    batch: list[Finished] = []
    alone = size = 0
    while finished and len(batch) < SETTLE_AT_ONCE and alone < ONE_BY_ONE:
        head = finished[0]
        size += _size(head)
        if batch and (head.again or size > SETTLE_BYTES):
            break
        batch.append(finished.popleft())
        alone += not (isinstance(head.outcome, ENDINGS) or goes_back(head.outcome))
        if head.again:
            break
    return batch


def _size(one: Finished) -> int:
    size = len(one.run.lease.message.body)
    if isinstance(one.outcome, Succeeded):
        value = one.outcome.value
        size += len(one.outcome.output) + (len(value.json) if isinstance(value, Encoded) else 0)
    return size
