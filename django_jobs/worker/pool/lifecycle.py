"""Children come and go: births, deaths, and what a death means for what it ran."""

from __future__ import annotations

import os
import selectors
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from django_jobs.execution.outcome import (
    ASKED_TO_STOP,
    Cancelled,
    Crashed,
    ErrorText,
    Failed,
    Interrupted,
)
from django_jobs.telemetry import events
from django_jobs.worker.pool.children import Child, Lane
from django_jobs.worker.pool.shared_memory import Board

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.children import Held
    from django_jobs.worker.pool.dispatch import Dispatch
    from django_jobs.worker.pool.forkserver import Nursery
    from django_jobs.worker.pool.settlement import Desk
    from django_jobs.worker.pool.shared_memory import Places


MOST_FAILURES = 6
FIRST_PAUSE = 0.1
GONE_SECONDS = 1.0
WHY_KILLED = {
    "fence": "its lease could not be renewed in time",
    "lost": "its lease was lost",
    "stop": "the worker was told to stop at once",
    "nursery": "the process from which children come ended, and they with it",
}


class Companion(Protocol):
    """A process from the nursery that runs no jobs."""

    def hears(self, kind: str, who: int, *rest: Any) -> bool:
        """News of the nursery; False when they are about somebody else."""


class Births:
    """The children of a worker, one in each slot, and their replacements."""

    def __init__(
        self,
        nursery: Nursery,
        places: Places,
        selector: selectors.BaseSelector,
        on_readable: Callable[[Child], None],
        companions: Sequence[Companion],
    ) -> None:
        self.children: dict[int, Child] = {}
        self.failures = 0
        self.last_failure = ""
        self._nursery = nursery
        self._board = Board(nursery.memory, places.slots)
        self._places = places
        self._selector = selector
        self._on_readable = on_readable
        self._companions = companions
        self._wished: dict[int, float] = {}
        self._asked: dict[int, Channel] = {}
        self._alone: set[int] = set()

    def wish_one_alone(self, *, needed: bool) -> None:
        """Let a child be born for jobs that have to run alone, if there may be one more.

        One after the other: a job may come back several times before the first is up.
        """
        children = map(self.children.get, self._alone)
        is_coming = any(child is None or not child.is_up for child in children)
        if not needed or is_coming or len(self._alone) == self._places.alone:
            return
        if (slot := self._free_slot()) is not None:
            self._alone.add(slot)
            self.wish(slot)

    def wish(self, slot: int) -> None:
        """Let a child be born, at once or, after failures, a little later."""
        pause = FIRST_PAUSE * 2 ** (self.failures - 1) if self.failures else 0.0
        self._wished[slot] = time.monotonic() + pause

    def wish_another(self) -> bool:
        """Let a child be born beside one that is about to leave; False when there is no slot."""
        free = self._free_slot()
        if free is not None:
            self.wish(free)
        return free is not None

    def _free_slot(self) -> int | None:
        taken = {*self.children, *self._asked, *self._wished}
        return next((slot for slot in self._places.children if slot not in taken), None)

    def step(self) -> None:
        now = time.monotonic()
        for slot in [slot for slot, due in self._wished.items() if due <= now]:
            del self._wished[slot]
            for place in self._places.of_child(slot):
                self._board.marks(place).reset()
            try:
                self._asked[slot] = self._nursery.ask(slot)
            except OSError as error:  # no descriptors left; or its own end, which is told elsewhere
                self._failed(slot, str(error))

    def hear(self) -> list[tuple[Child, int]]:
        """The children that died, with their wait status; EOFError when the nursery did."""
        died = []
        for kind, *told in self._nursery.news():
            if any(companion.hears(kind, *told) for companion in self._companions):
                continue
            if kind == "born":
                self._born(*told)
            elif kind == "failed":
                self._asked.pop(told[0]).close()
                self._failed(*told)
            else:
                found = [child for child in self.children.values() if child.pid == told[0]]
                died += [(child, told[1]) for child in found]
        return died

    def bury(self, child: Child, how: str) -> None:
        """It is gone: nobody listens to it any more."""
        del self.children[child.slot]
        self._alone.discard(child.slot)
        if not child.mute_since:
            self._selector.unregister(child.channel)
        child.channel.close()
        quick = time.monotonic() - child.born_at < self._nursery.quick_seconds
        quick = quick or (child.killed == "silent" and not child.is_up)
        own = child.fault or not child.killed
        if quick and own and not any(lane.marks.ran for lane in child.lanes):
            self.failures += 1
            self.last_failure = child.fault or how

    def listen(self, child: Child) -> None:
        """Wait for what a child says, and for room when something is still to be sent to it."""
        if child.mute_since:
            return
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        wanted = both if child.channel.is_full else selectors.EVENT_READ
        if self._selector.get_key(child.channel).events != wanted:
            self._selector.modify(child.channel, wanted, lambda: self._on_readable(child))

    def mute(self, child: Child) -> None:
        """It says nothing any more. Its death is told by the nursery, with the reason."""
        self._selector.unregister(child.channel)
        child.mute_since = time.monotonic()

    def all_gone(self) -> list[Child]:
        """Without a nursery the children have ended, or do so now."""
        children = list(self.children.values())
        for child in children:
            child.kill("nursery")
        until = time.monotonic() + GONE_SECONDS
        while any(_is_alive(child.pid) for child in children) and time.monotonic() < until:
            time.sleep(0.01)
        self._wished.clear()
        for channel in self._asked.values():
            channel.close()
        self._asked.clear()
        return children

    def close(self) -> None:
        """Let them end by themselves, also those yet to be born; the nursery sees to the rest."""
        for channel in [*self._asked.values(), *(x.channel for x in self.children.values())]:
            channel.close()

    def _born(self, slot: int, pid: int) -> None:
        channel = self._asked.pop(slot)
        alone = slot in self._alone
        child = Child(slot, pid, channel, alone=alone, born_at=time.monotonic())
        places = enumerate(self._places.of_child(slot))
        child.lanes += [Lane(child, index, self._board.marks(place)) for index, place in places]
        self.children[slot] = child
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._on_readable(child))

    def _failed(self, slot: int, why: str) -> None:
        self.failures += 1
        self.last_failure = f"no process can be started: {why}"
        self.wish(slot)


def clear_desk(child: Child, how: str, desk: Desk, dispatch: Dispatch) -> None:
    """What a dead child held: what it ran is judged, the rest goes to another."""
    begun = [(lane, number) for lane in child.lanes for number in lane.begun()]
    ran = []
    for lane, number in begun:
        judge = _verdict_on_fault if child.fault else _verdict
        outcome = judge(lane, number, how, alone=len(begun) == 1)
        ran.append(lane.given.pop(number))
        desk.cut_short(ran[-1], lane, outcome)
    unstarted = [held for lane in child.lanes for held in lane.given.values()]
    for lane in child.lanes:
        lane.given.clear()
    dispatch.ready.extendleft(reversed(unstarted))
    if begun or child.fault or not (child.killed or child.dismissed):
        events.emit(_told_death(child, how, ran, len(unstarted)))


def _told_death(child: Child, how: str, begun: Sequence[Held], returned: int) -> events.Event:
    about = begun[0].lease.id if len(begun) == 1 else f"{len(begun)} jobs" if begun else "none"
    why = child.fault or child.killed or "of its own"
    return events.ChildDied(pid=child.pid, how=how, why=why, job_id=about, returned=returned)


def _verdict_on_fault(lane: Lane, number: int, _how: str, *, alone: bool) -> Outcome:
    """Perhaps an earlier job left behind what did it; where it happens again, it was this one."""
    fault = lane.child.fault
    if lane.child.killed == "silent" and lane.is_occupied:
        return Interrupted(fault)
    if alone and lane.given[number].lease.suspect:
        return Crashed(fault)
    return Interrupted(fault, suspect=True)


def _verdict(lane: Lane, number: int, how: str, *, alone: bool) -> Outcome:
    """A crash is charged only to what ran alone; of several nobody knows which it was."""
    child = lane.child
    if not child.killed and not alone:
        return Interrupted(f"it ran beside others when {how}", suspect=True)
    if not child.killed:
        return Crashed(how)
    if child.killed == "mute":
        told = "it closed its connection to the worker and did not end"
        return Crashed(told) if alone else Interrupted(f"beside others: {told}", suspect=True)
    if child.killed == "stuck" and not alone:
        return Interrupted("a job beside it did not let the process go on", suspect=True)
    if child.killed == "asked" and child.blamed == number:
        return Cancelled(f"{ASKED_TO_STOP}; it did not in time, and its process was killed")
    if child.killed in {"timeout", "stuck"} and child.blamed == number:
        told = "the handler did not end in time and its process was killed"
        return Failed(ErrorText("JobTimeout", told), timed_out=True)
    return Interrupted(WHY_KILLED.get(child.killed, "its process was killed for another job"))


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - one read, of a file that is none
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# Children that have had enough: after so many jobs, or with so much memory, another comes.
#
# Nothing is charged for it. A worn child gets nothing new, gives up what it has not begun,
# and is told to leave when what it runs has ended; its replacement is born at once.


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
