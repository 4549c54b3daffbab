"""The garbage collector of a parent, which makes thousands of small objects a second."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# All that a parent holds of its leases is less than that, and goes without a collector.
YOUNGEST = 50_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles seldom, and not among what was there before, inside the block.

    A parent runs no handlers, and leases are in no cycle; a child that has ended is, which is
    little. Yet a batch of leases is enough for the collector to look at them again and again.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(max(YOUNGEST, thresholds[0]) if thresholds[0] else 0, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
