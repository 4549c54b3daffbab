"""The children as the parent knows them: what their lanes were given, and what they have begun."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django_jobs.worker.pool.messages import NOTHING_SAID, RAN, lease_to_tuple, said_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.marks import Marks
    from django_jobs.worker.pool.messages import Said

FENCE_SHARE = 6  # nothing runs in this last part of a lease
KILL_SHARE = 12  # nor is anything given time to be cancelled in this one
NEIGHBOUR_GRACE = 2.0  # what runs beside an overrun may end within this
STUCK_SECONDS = 1.5
PROMPT_SECONDS = 0.05


@dataclass(slots=True)
class Held:
    """A lease, and until when it certainly holds on this machine's monotonic clock."""

    lease: Lease
    seconds: float
    ends: float
    handler: str

    @classmethod
    def of(cls, lease: Lease, seconds: float, ends: float) -> Held:
        return cls(lease, seconds, ends, str(lease.message.index.get("handler", "")))

    @property
    def fence(self) -> float:
        """The moment from which it must not be run."""
        return self.ends - self.seconds / FENCE_SHARE


@dataclass(slots=True, eq=False)
class Lane:
    """What a child does one after the other. It has as many lanes as it runs jobs at once."""

    child: Child
    index: int
    marks: Marks
    given: OrderedDict[int, Held] = field(default_factory=OrderedDict)
    revoked: set[int] = field(default_factory=set)
    given_at: float = 0.0
    asked: tuple[int, float] = (0, 0.0)

    def give(self, held: Sequence[Held]) -> None:
        """Hand leases over, with the child's next frame."""
        self.given_at = time.monotonic()
        for one in held:
            number = self.child.next_number()
            self.given[number] = one
            told = (self.index, number, one.seconds, lease_to_tuple(one.lease))
            self.child.outbox.append(told)
        self.marks.hold_until(self.fence)

    @property
    def fence(self) -> float:
        """The moment from which it must not run all that it holds."""
        return min((held.fence for held in self.given.values()), default=0.0)

    @property
    def accepts(self) -> bool:
        return self.child.accepts and not self.revoked

    def running(self) -> tuple[int, Held] | None:
        """What it has begun and not ended."""
        started = self.marks.started
        held = self.given.get(started) if started > self.marks.finished else None
        return None if held is None else (started, held)

    def is_running_since(self, moment: int) -> bool:
        """Whether what it runs began before a moment on this machine's clock."""
        return self.running() is not None and self.marks.began_at < moment

    def begun(self) -> tuple[int, Held] | None:
        """What it really ran and has not told the end of."""
        ran = self.marks.ran
        held = self.given.get(ran)
        return None if held is None else (ran, held)

    def makes_wait(self, now: float) -> bool:
        """Whether some of what it holds may wait behind something else.

        The first that it was given begins at once, unless its process is busy otherwise.
        """
        return len(self.given) > 1 or bool(self.given and now - self.given_at > PROMPT_SECONDS)

    def unstarted(self) -> list[int]:
        started = self.marks.started
        return [number for number in self.given if number > started]

    def take_back(self, count: int) -> list[Held]:
        """The last so many of what it has not begun, if it still has not.

        Until it has come across all of them it gets nothing new.
        """
        numbers = self.unstarted()[-count:] if count > 0 else []
        if not numbers:
            return []
        started = self.marks.take_back_from(numbers[0])
        self.revoked.update(numbers)
        return [self.given.pop(number) for number in numbers if number > started]

    def take_back_all(self) -> list[Held]:
        return self.take_back(len(self.given))

    def seen(self, number: int) -> Held | None:
        """It is done with a number, run or not; what it held by it, if that was not taken back."""
        if self.revoked:
            self.revoked.discard(number)
            if not self.revoked:
                self.marks.allow_all()
        return self.given.pop(number, None)

    def ask_to_stop(self, number: int, kill_at: float) -> None:
        """Let what it runs see that it is to stop; one that does not is stopped in time."""
        if self.asked[0] != number:
            self.asked = (number, kill_at)
            self.marks.ask_to_stop(number)

    def stop(self, why: str, number: int) -> None:
        """End what it runs: at once where it is alone; among others first only its own run."""
        child = self.child
        if len(child.lanes) == 1:
            child.kill(why, number)
        elif self.index not in child.overruns:
            held = self.given[number]
            kill_at = time.monotonic() + NEIGHBOUR_GRACE
            if why == "fence":
                kill_at = min(kill_at, held.ends - held.seconds / KILL_SHARE)
            child.overruns[self.index] = Overrun(number, why, kill_at)
            child.post(("cancel", self.index, number, why))


@dataclass(frozen=True, slots=True)
class Overrun:
    """A run that has to end, in a child that runs others too."""

    number: int
    why: str
    kill_at: float


@dataclass(slots=True, eq=False)
class Child:
    """One child process."""

    slot: int
    pid: int
    channel: Channel
    hermit: bool = False
    lanes: list[Lane] = field(default_factory=list)
    outbox: list[tuple[Any, ...]] = field(default_factory=list)
    overruns: dict[int, Overrun] = field(default_factory=dict)
    killed: str = ""
    blamed: int = 0
    mute_since: float = 0.0
    born_at: float = 0.0
    said: Said = NOTHING_SAID
    last: int = 0
    ended: int = 0
    worn: str = ""
    replaced: bool = False
    dismissed: bool = False

    def next_number(self) -> int:
        self.last += 1
        return self.last

    def hand_over(self) -> None:
        """Send what its lanes were given; a child that is gone gets it counted all the same."""
        if self.outbox:
            frame, self.outbox = self.outbox, []
            self.post(("run", frame))

    def hear(self, kind: str, told: list[Any]) -> tuple[Said, tuple[int, int]]:
        """How something ended, and when it began and ended."""
        if kind == RAN:
            *what, times = told
            self.said = said_of(*what)
        else:
            started, lasted = told
            times = started, started + lasted
        return self.said, times

    def post(self, frame: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):  # its end is on the way and returns what it held
            self.channel.post(frame)

    @property
    def accepts(self) -> bool:
        return not (self.killed or self.mute_since or self.overruns or self.worn)

    @property
    def load(self) -> int:
        """How much it holds."""
        return sum(len(lane.given) for lane in self.lanes)

    @property
    def is_idle(self) -> bool:
        return not any(lane.given for lane in self.lanes)

    def dismiss(self) -> None:
        """Tell it that nothing comes any more; it ends by itself."""
        if not (self.dismissed or self.mute_since):
            self.dismissed = True
            with contextlib.suppress(OSError):
                self.channel.sock.shutdown(socket.SHUT_WR)

    def is_stuck(self, now: float) -> bool:
        """Whether nothing goes on in it, so that nobody knows which of its runs is to blame."""
        beaten_at = self.lanes[0].marks.beaten_at
        return len(self.lanes) > 1 and now - beaten_at > STUCK_SECONDS

    def kill(self, why: str, number: int = 0) -> None:
        """End it and everything it started, for the sake of the job with a number."""
        if self.killed:
            return
        self.killed, self.blamed = why, number
        kill_group(self.pid)


def kill_group(pid: int) -> None:
    """Kill a process and everything that it started."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def told_end(status: int) -> str:
    """A wait status in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the process was killed by {name}"
