"""Deadlines and fences: what runs too long is killed, what has no lease does not run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_jobs.worker.pool.crew import Child
    from django_jobs.worker.pool.dispatch import Dispatch

LOOK_SECONDS = 0.25
MUTE_SECONDS = 1.0


def look(children: Iterable[Child], dispatch: Dispatch) -> None:
    """Kill what has to be killed now."""
    now = time.monotonic()
    for child in children:
        if child.mute_since and now - child.mute_since > MUTE_SECONDS:
            child.kill("mute", child.marks.ran)
        _look_at(child, now)
        if any(now > held.fence for held in child.given.values()):
            dispatch.ready.extend(child.take_back(len(child.given)))


def _look_at(child: Child, now: float) -> None:
    running = child.running()
    if running is None:
        return
    number, held = running
    deadline = child.marks.deadline
    if child.marks.started != number:  # it went on meanwhile; the deadline may be another's
        return
    if 0.0 < deadline < now:
        child.kill("timeout", number)
    elif now > held.fence:
        child.kill("fence", number)


def pause(children: Iterable[Child]) -> float:
    """How long nothing can become due."""
    now = time.monotonic()
    moments = [child.marks.deadline for child in children if child.given]
    return max(min([LOOK_SECONDS, *(moment - now for moment in moments if moment > now)]), 0.001)
