"""Starts, replaces and ends processes, and decides what a death means for the jobs of a child."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from django_jobs.outcome import (
    ASKED_TO_STOP,
    Cancelled,
    Crashed,
    ErrorText,
    Failed,
    Interrupted,
)
from django_jobs.retry import Backoff
from django_jobs.telemetry import events
from django_jobs.worker.pool import forkserver
from django_jobs.worker.pool.children import Child, Lane
from django_jobs.worker.pool.forkserver import describe_exit, kill_group
from django_jobs.worker.pool.shared_memory import Board

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from django_jobs.outcome import Outcome
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.children import Held
    from django_jobs.worker.pool.dispatch import Dispatch
    from django_jobs.worker.pool.forkserver import ForkServer
    from django_jobs.worker.pool.settlement import Settlement
    from django_jobs.worker.pool.shared_memory import Places


MOST_FAILURES = 6
FIRST_PAUSE = 0.1
GONE_SECONDS = 1.0
WHY_KILLED = {
    "fence": "its lease could not be renewed in time",
    "lost": "its lease was lost",
    "stop": "the worker was told to stop at once",
    "forkserver": "the process from which children come ended, and they with it",
}
_NEVER = float("inf")


class Failures:
    """How many processes failed in a row, and how long to wait before the next."""

    def __init__(self, first_pause: float = 0.0, longest_pause: float = _NEVER) -> None:
        self.count = 0
        self.last = ""
        self.pause = 0.0
        self._backoff = Backoff(first_pause, longest_pause)

    def add(self, why: str) -> None:
        self.count += 1
        self.last = why
        self.pause = self._backoff.next()

    def clear(self) -> None:
        self.count, self.pause = 0, 0.0
        self._backoff.reset()


class Process:
    """One slot of the fork server: its process is requested, born, ended, and requested again.

    Nothing here blocks. The supervisor calls ``step`` again and again, and ``Processes`` passes on
    the reports of the fork server as ``born``, ``failed`` or ``ended``. Subclasses extend these
    methods.
    """

    def __init__(self, server: ForkServer, slot: int, failures: Failures) -> None:
        self.slot = slot
        self.failures = failures
        self.pid = 0
        self.channel: Channel | None = None
        self.born_at = 0.0
        self._server = server
        self._due_at = _NEVER
        self._is_coming = False

    @property
    def is_requested(self) -> bool:
        """Whether it is to be started, at once or after a pause."""
        return self._due_at < _NEVER

    @property
    def is_vacant(self) -> bool:
        """Whether it has no process, and none is requested or being started."""
        return not (self.pid or self._is_coming or self.is_requested)

    def request(self) -> None:
        """Request a process: at once or, after failures, a little later."""
        self._due_at = time.monotonic() + self.failures.pause

    def withdraw(self) -> None:
        """Withdraw a request that was not sent to the fork server yet."""
        self._due_at = _NEVER

    def step(self) -> None:
        """Start it when it is due."""
        if time.monotonic() >= self._due_at:
            self._due_at = _NEVER
            self.start()

    def start(self) -> None:
        """Let the fork server start it."""
        try:
            self.channel = self._server.request(self.slot)
        except (
            OSError
        ) as error:  # no descriptors left; or the fork server ended, which shows elsewhere
            self.failed(str(error))
        else:
            self._is_coming = True

    def born(self, pid: int) -> None:
        """The fork server has started it."""
        self._is_coming = False
        self.pid, self.born_at = pid, time.monotonic()

    def failed(self, why: str) -> None:
        """The fork server could not start it."""
        self._is_coming = False
        self.close()
        self.failures.add(f"no process can be started: {why}")

    def ended(self, _how: str) -> None:
        """The process has ended. Its last frames can be read until here."""
        self.close()
        self.pid = 0

    def close(self) -> None:
        """Close its channel: it ends by itself, even if it is yet to be born."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def kill(self) -> None:
        """Kill it and everything that it started."""
        if self.pid:
            kill_group(self.pid)


class Processes:
    """All processes of a worker; passes news from the fork server on to their slots."""

    def __init__(self, server: ForkServer, processes: Iterable[Process]) -> None:
        self._server = server
        self._by_slot = {process.slot: process for process in processes}
        self._by_pid: dict[int, Process] = {}

    def read_news(self) -> None:
        """Pass on the reports of the fork server; raises EOFError when it is gone."""
        for news in self._server.news():
            match news:
                case forkserver.Born(slot, pid):
                    process = self._by_pid[pid] = self._by_slot[slot]
                    process.born(pid)
                case forkserver.BirthFailed(slot, why):
                    self._by_slot[slot].failed(why)
                case forkserver.ChildEnded(pid, status):
                    self._by_pid.pop(pid).ended(describe_exit(status))


class ChildSlot(Process):
    """A slot for a child that runs jobs."""

    def __init__(self, server: ForkServer, slot: int, slots: ChildSlots) -> None:
        super().__init__(server, slot, slots.failures)
        self.isolated = False
        self._slots = slots

    def request(self) -> None:
        super().request()
        if self not in self._slots.requested:
            self._slots.requested.append(self)

    def start(self) -> None:
        self._slots.reset_marks(self)
        super().start()

    def born(self, pid: int) -> None:
        super().born(pid)
        if self.channel is not None:  # it is None only when the worker ends
            self._slots.add(self, self.channel)

    def failed(self, why: str) -> None:
        super().failed(why)
        self.request()

    def ended(self, how: str) -> None:
        self._slots.lose(self, how)
        super().ended(how)


class ChildSlots:
    """The slots for children of a worker, and the children in them."""

    def __init__(
        self,
        server: ForkServer,
        places: Places,
        selector: selectors.BaseSelector,
        on_readable: Callable[[Child], None],
        on_death: Callable[[Child, str], None],
    ) -> None:
        self.by_slot: dict[int, Child] = {}
        self.failures = Failures(FIRST_PAUSE)
        self.requested: list[ChildSlot] = []
        self._slots = [ChildSlot(server, slot, self) for slot in places.children]
        self._quick_seconds = server.quick_seconds
        self._board = Board(server.memory, places.slots)
        self._places = places
        self._selector = selector
        self._on_readable = on_readable
        self._on_death = on_death

    def __iter__(self) -> Iterator[ChildSlot]:
        return iter(self._slots)

    def request(self, slot: int) -> None:
        """Request a child in this slot."""
        self._slots[slot].request()

    def request_isolated(self, *, needed: bool) -> None:
        """Request another child for jobs that have to run alone, if there is a place for it.

        One at a time: a job may come back several times before the first child is up.
        """
        if not needed:
            return
        isolated = [slot for slot in self._slots if slot.isolated]
        children = [self.by_slot.get(slot.slot) for slot in isolated]
        is_coming = any(child is None or not child.is_up for child in children)
        if is_coming or len(isolated) == self._places.isolated:
            return
        if (slot := self._vacant_slot()) is not None:
            slot.isolated = True
            slot.request()

    def request_another(self) -> bool:
        """Request a replacement for a retiring child; False when no slot is vacant."""
        if (slot := self._vacant_slot()) is not None:
            slot.request()
        return slot is not None

    def _vacant_slot(self) -> ChildSlot | None:
        return next((slot for slot in self._slots if slot.is_vacant), None)

    def step(self) -> None:
        if self.requested:
            for slot in self.requested:
                slot.step()
            self.requested = [slot for slot in self.requested if slot.is_requested]

    def reset_marks(self, slot: ChildSlot) -> None:
        """Clear the marks that its last child left."""
        for place in self._places.of_child(slot.slot):
            self._board.marks(place).reset()

    def add(self, slot: ChildSlot, channel: Channel) -> None:
        """A child was born."""
        child = Child(slot.slot, slot.pid, channel, isolated=slot.isolated, born_at=slot.born_at)
        places = enumerate(self._places.of_child(slot.slot))
        child.lanes += [Lane(child, index, self._board.marks(place)) for index, place in places]
        self.by_slot[slot.slot] = child
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._on_readable(child))

    def lose(self, slot: ChildSlot, how: str) -> None:
        """A child has ended."""
        slot.isolated = False
        self._on_death(self.by_slot[slot.slot], how)

    def remove(self, child: Child, how: str) -> None:
        """Forget a child that has ended; count a failure if it died young, without a job."""
        del self.by_slot[child.slot]
        if not child.disconnected_at:
            self._selector.unregister(child.channel)
        quick = time.monotonic() - child.born_at < self._quick_seconds
        quick = quick or (child.killed == "silent" and not child.is_up)
        own = child.fault or not child.killed
        if quick and own and not any(lane.marks.ran for lane in child.lanes):
            self.failures.add(child.fault or how)

    def listen(self, child: Child) -> None:
        """Select a child for reading, and for writing while frames wait to be sent to it."""
        if child.disconnected_at:
            return
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        wanted = both if child.channel.is_full else selectors.EVENT_READ
        if self._selector.get_key(child.channel).events != wanted:
            self._selector.modify(child.channel, wanted, lambda: self._on_readable(child))

    def disconnect(self, child: Child) -> None:
        """Stop listening to a child. The fork server will report its death, with the reason."""
        self._selector.unregister(child.channel)
        child.disconnected_at = time.monotonic()

    def end_all(self) -> None:
        """Kill all children: the fork server is gone."""
        children = list(self.by_slot.values())
        for child in children:
            child.kill("forkserver")
        until = time.monotonic() + GONE_SECONDS
        while any(_is_alive(child.pid) for child in children) and time.monotonic() < until:
            time.sleep(0.01)
        for slot in self._slots:
            slot.withdraw()
            if not slot.pid:
                slot.close()
        for child in children:
            self._slots[child.slot].ended(describe_exit(signal.SIGKILL))

    def close(self) -> None:
        """Let all children end by themselves; the fork server kills those that do not."""
        for slot in self._slots:
            slot.close()


def settle_death(child: Child, how: str, settlement: Settlement, dispatch: Dispatch) -> None:
    """Settle the jobs that a dead child had begun, and give the others to other children."""
    begun = [(lane, number) for lane in child.lanes for number in lane.begun()]
    ran = []
    for lane, number in begun:
        judge = _verdict_on_fault if child.fault else _verdict
        outcome = judge(lane, number, how, alone=len(begun) == 1)
        ran.append(lane.held.pop(number))
        settlement.cut_short(ran[-1], lane, outcome)
    unstarted = [held for lane in child.lanes for held in lane.held.values()]
    for lane in child.lanes:
        lane.held.clear()
    dispatch.ready.extendleft(reversed(unstarted))
    if begun or child.fault or not (child.killed or child.dismissed):
        events.emit(_death_of(child, how, ran, len(unstarted)))


def _death_of(child: Child, how: str, begun: Sequence[Held], returned: int) -> events.Event:
    about = begun[0].lease.id if len(begun) == 1 else f"{len(begun)} jobs" if begun else "none"
    why = child.fault or child.killed or "of its own"
    return events.ChildDied(pid=child.pid, how=how, why=why, job_id=about, returned=returned)


def _verdict_on_fault(lane: Lane, number: int, _how: str, *, alone: bool) -> Outcome:
    """An earlier job may have caused a fault of the child; a suspect that ran alone is charged."""
    fault = lane.child.fault
    if lane.child.killed == "silent" and lane.is_occupied:
        return Interrupted(fault)
    if alone and lane.held[number].lease.suspect:
        return Crashed(fault)
    return Interrupted(fault, suspect=True)


def _verdict(lane: Lane, number: int, how: str, *, alone: bool) -> Outcome:
    """A crash is charged only to a job that ran alone: otherwise any of them may be the cause."""
    child = lane.child
    if not child.killed and not alone:
        return Interrupted(f"it ran beside others when {how}", suspect=True)
    if not child.killed:
        return Crashed(how)
    if child.killed == "disconnected":
        fault = "it closed its connection to the worker and did not end"
        return Crashed(fault) if alone else Interrupted(f"beside others: {fault}", suspect=True)
    if child.killed == "stuck" and not alone:
        return Interrupted("a job beside it did not let the process go on", suspect=True)
    if child.killed == "asked" and child.culprit == number:
        return Cancelled(f"{ASKED_TO_STOP}; it did not in time, and its process was killed")
    if child.killed in {"timeout", "stuck"} and child.culprit == number:
        error = "the handler did not end in time and its process was killed"
        return Failed(ErrorText("JobTimeout", error), timed_out=True)
    return Interrupted(WHY_KILLED.get(child.killed, "its process was killed for another job"))


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - one read, of a pseudo file
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


MEGABYTE = 1 << 20
_STATM = "/proc/{}/statm"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """When a child is replaced: after how many jobs, and above how many resident bytes.

    Nothing is charged for it. A retiring child gets nothing new, gives up what it has not begun,
    and is dismissed when what it runs has ended; its replacement is born at once.
    """

    max_jobs: int | None = None
    max_memory: int | None = None

    def room(self, child: Child, at_once: int) -> int:
        """How many more jobs a child may be handed.

        A child of one lane never exceeds its maximum; with several lanes, the jobs beside the
        last one may exceed it.
        """
        if self.max_jobs is None:
            return sys.maxsize
        return self.max_jobs + at_once - 1 - child.ended_jobs - child.load

    def reached(self, child: Child) -> str:
        """The limit that a child has reached, in words; empty if none."""
        if not child.ended_jobs:  # a fresh child would not be smaller
            return ""
        if self.max_jobs is not None and child.ended_jobs >= self.max_jobs:
            return f"--child-max-jobs is {self.max_jobs}"
        if self.max_memory is not None and (size := resident_bytes(child.pid)) > self.max_memory:
            limit = self.max_memory // MEGABYTE
            return f"it holds {size / MEGABYTE:.0f} MB, and --child-max-memory is {limit}"
        return ""


class Recycling:
    """Replaces the children that have reached a limit."""

    def __init__(self, limits: ChildLimits, slots: ChildSlots, dispatch: Dispatch) -> None:
        self._limits = limits
        self._slots = slots
        self._dispatch = dispatch

    def check(self, child: Child) -> None:
        """Retire a child if it has reached a limit."""
        if child.retiring or child.killed or not (why := self._limits.reached(child)):
            return
        child.retiring = why
        for lane in child.lanes:
            self._dispatch.ready.extendleft(reversed(lane.take_back_all()))
        events.emit(events.ChildRecycled(pid=child.pid, jobs=child.ended_jobs, why=why))

    def step(self) -> None:
        """Request replacements for retiring children, and dismiss those that are idle."""
        for child in self._slots.by_slot.values():
            if child.isolated and child.is_idle and self._dispatch.needs_no_isolated():
                child.retiring = child.retiring or "there is nothing that has to run alone"
            if not child.retiring:
                continue
            if not (child.replaced or child.isolated):
                child.replaced = self._slots.request_another()
            if child.is_idle and not any(lane.revoked for lane in child.lanes):
                child.dismiss()


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if it is gone or the system does not report it."""
    try:
        pages = Path(_STATM.format(pid)).read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def can_measure() -> bool:
    """Whether this system reports the memory of other processes."""
    return Path(_STATM.format("self")).exists()
