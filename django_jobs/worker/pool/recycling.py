"""Children that have had enough: after so many jobs, or with so much memory, another comes.

Nothing is charged for it. A worn child gets nothing new, gives up what it has not begun,
and is told to leave when what it runs has ended; its replacement is born at once.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from django_jobs.telemetry import events

if TYPE_CHECKING:
    from django_jobs.worker.pool.births import Births
    from django_jobs.worker.pool.crew import Child
    from django_jobs.worker.pool.dispatch import Dispatch

MEGABYTE = 1 << 20
_STATM = "/proc/{}/statm"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """When a child has had enough: jobs, and bytes of resident memory."""

    max_jobs: int | None = None
    max_memory: int | None = None

    def room(self, child: Child, at_once: int) -> int:
        """How many more jobs a child may be handed.

        It never runs one too many; where it runs several at once, those beside its last
        one may be too many.
        """
        if self.max_jobs is None:
            return sys.maxsize
        return self.max_jobs + at_once - 1 - child.ended - child.load

    def reached(self, child: Child) -> str:
        """The limit that a child has reached, in words; empty when none."""
        if not child.ended:  # a fresh one is not lighter
            return ""
        if self.max_jobs is not None and child.ended >= self.max_jobs:
            return f"--child-max-jobs is {self.max_jobs}"
        if self.max_memory is not None and (held := resident_bytes(child.pid)) > self.max_memory:
            limit = self.max_memory // MEGABYTE
            return f"it holds {held / MEGABYTE:.0f} MB, and --child-max-memory is {limit}"
        return ""


class Recycling:
    """Replaces the children that have reached a limit."""

    def __init__(self, limits: ChildLimits, births: Births, dispatch: Dispatch) -> None:
        self._limits = limits
        self._births = births
        self._dispatch = dispatch

    def look(self, child: Child) -> None:
        """A job of this child has ended."""
        if child.worn or child.killed or not (why := self._limits.reached(child)):
            return
        child.worn = why
        for lane in child.lanes:
            self._dispatch.ready.extendleft(reversed(lane.take_back_all()))
        events.emit(events.ChildRecycled(pid=child.pid, jobs=child.ended, why=why))

    def step(self) -> None:
        """Call the replacements of worn children, and let go of those that have nothing to do."""
        for child in self._births.children.values():
            if child.alone and child.is_idle and self._dispatch.needs_none_alone():
                child.worn = child.worn or "there is nothing that has to run alone"
            if not child.worn:
                continue
            if not (child.replaced or child.alone):
                child.replaced = self._births.wish_another()
            if child.is_idle and not any(lane.revoked for lane in child.lanes):
                child.dismiss()


def resident_bytes(pid: int) -> int:
    """The memory that a process holds; 0 where it is gone or nobody can say."""
    try:
        pages = Path(_STATM.format(pid)).read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def can_measure() -> bool:
    """Whether this system tells how much memory another process holds."""
    return Path(_STATM.format("self")).exists()
