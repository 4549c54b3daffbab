"""The children as the parent sees them: what their lanes hold, and what they have begun."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django_jobs.worker.pool.forkserver import kill_group
from django_jobs.worker.pool.messages import (
    ALIKE,
    MOMENT_BITS,
    NOTHING_SAID,
    RAN,
    BadFrame,
    check_rest,
    lease_to_tuple,
    said_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.messages import Said
    from django_jobs.worker.pool.shared_memory import Marks

    Ran = tuple[Said, tuple[int, int]]

FENCE_SHARE = 6  # nothing runs in this last part of a lease
KILL_SHARE = 12  # nor is anything given time to be cancelled in this one
NEIGHBOUR_GRACE = 2.0  # what runs beside an overrun may end within this
STUCK_SECONDS = 1.5
PROMPT_SECONDS = 0.05
LONGEST_LOOK = 1.0


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
    held: OrderedDict[int, Held] = field(default_factory=OrderedDict)
    revoked: set[int] = field(default_factory=set)
    given_at: float = 0.0
    asked: tuple[int, float] = (0, 0.0)
    quiet: float = 0.0
    place: tuple[int, ...] = ()

    def give(self, leases: Sequence[Held]) -> None:
        """Hand leases over, with the child's next frame."""
        self.given_at = time.monotonic()
        for held in leases:
            number = self.child.next_number()
            self.held[number] = held
            lease = lease_to_tuple(held.lease)
            self.child.outbox.append((self.index, number, held.seconds, lease))
        self.marks.hold_until(self.fence)

    @property
    def fence(self) -> float:
        """The moment from which it must not run all that it holds."""
        return min((held.fence for held in self.held.values()), default=0.0)

    @property
    def accepts(self) -> bool:
        return self.child.accepts and not self.revoked

    def running(self) -> tuple[int, Held] | None:
        """What it has begun and not ended."""
        started = self.marks.started
        held = self.held.get(started) if started > self.marks.finished else None
        return None if held is None else (started, held)

    @property
    def is_occupied(self) -> bool:
        """Whether user code of a job runs. For how long it may is up to the job."""
        return self.running() is not None and self.marks.deadline > 0.0

    @property
    def has_unheard(self) -> bool:
        """Whether it has ended a job and its verdict has not come."""
        return bool(self.held) and next(iter(self.held)) <= self.marks.finished

    def watch(self, seconds: float) -> None:
        """Count for how long it has owed something to the parent, and did nothing for it."""
        owes = self.held or self.revoked or self.child.dismissed
        first = next(iter(self.held), 0)
        place = (self.marks.started, self.marks.finished, first, len(self.revoked))
        if not owes or self.is_occupied or place != self.place:
            self.quiet, self.place = 0.0, place
        else:
            self.quiet += seconds

    def is_running_since(self, moment: float) -> bool:
        """Whether what it runs began before a moment on the monotonic clock."""
        return self.running() is not None and self.marks.began_at < moment

    def begun(self) -> list[int]:
        """What it really ran and has not reported the end of.

        That is one job; more of them where the parent stopped listening before it died.
        """
        ran = self.marks.ran
        return [number for number in self.held if number <= ran]

    def makes_wait(self, now: float) -> bool:
        """Whether some of what it holds may wait behind something else.

        The first that it was given begins at once, unless its process is busy otherwise.
        """
        return len(self.held) > 1 or bool(self.held and now - self.given_at > PROMPT_SECONDS)

    def unstarted(self) -> list[int]:
        started = self.marks.started
        return [number for number in self.held if number > started]

    def take_back(self, count: int) -> list[Held]:
        """The last so many of what it has not begun, if it still has not.

        Until it has come across all of them it gets nothing new.
        """
        numbers = self.unstarted()[-count:] if count > 0 else []
        if not numbers:
            return []
        started = self.marks.take_back_from(numbers[0])
        self.revoked.update(numbers)
        return [self.held.pop(number) for number in numbers if number > started]

    def take_back_all(self) -> list[Held]:
        return self.take_back(len(self.held))

    def seen(self, number: int) -> Held | None:
        """It is done with a number, run or not; what it held by it, if that was not taken back.

        It comes to numbers one after the other: one that was passed over is a BadFrame.
        """
        if self.revoked:
            self.revoked.discard(number)
            if not self.revoked:
                self.marks.allow_all()
        if not self.held:
            return None
        first, held = self.held.popitem(last=False)
        if first == number:
            return held
        self.held[first] = held
        self.held.move_to_end(first, last=False)
        if number in self.held:
            raise BadFrame("an end that came before that of the job before it")
        return None

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
            held = self.held[number]
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
    """One child process. ``isolated``: it is for what has to run alone, one job at a time."""

    slot: int
    pid: int
    channel: Channel
    isolated: bool = False
    lanes: list[Lane] = field(default_factory=list)
    outbox: list[tuple[Any, ...]] = field(default_factory=list)
    overruns: dict[int, Overrun] = field(default_factory=dict)
    killed: str = ""
    culprit: int = 0
    fault: str = ""
    disconnected_at: float = 0.0
    born_at: float = 0.0
    said: Said = NOTHING_SAID
    terms: tuple[Any, ...] | None = None
    last: int = 0
    ended: int = 0
    retiring: str = ""
    replaced: bool = False
    dismissed: bool = False
    looked_at: float = 0.0
    received: int = 0

    def next_number(self) -> int:
        self.last += 1
        return self.last

    def hand_over(self) -> None:
        """Send what its lanes hold; for a child that is gone it counts all the same."""
        if self.outbox:
            frame, self.outbox = self.outbox, []
            self.post(("run", frame))

    def heard(self, frame: Any) -> tuple[Held | None, Ran | None]:
        """The job that a frame is about; what it tells of its run, where that is to be settled.

        BadFrame where no child of ours sends such: a value of another type would raise in
        the store's thread, on which all jobs of this worker depend.
        """
        try:
            index, number, kind = frame[:3]
            if kind == ALIKE:
                _, _, _, started, lasted = frame
                finished = started + lasted
            elif kind == RAN:
                _, _, _, outcome, terms, counts, (started, finished) = frame
                known = self.said.terms if terms == self.terms else None
                self.said = said_of(outcome, terms, counts, known)
                self.terms = terms
            else:
                check_rest(kind, frame)
                return self.lanes[index].seen(number), None
            if (started | finished) >> MOMENT_BITS:  # no number, below 0, or beyond any store
                raise BadFrame(f"a run from {started} to {finished}")  # noqa: TRY301 - as the others
            return self.lanes[index].seen(number), (self.said, (started, finished))
        except BadFrame:
            raise
        except Exception as error:  # what is no frame of ours raises one of many
            raise BadFrame(f"a frame of another shape: {error!r}") from error

    def post(self, frame: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):  # its end is on the way and returns what it held
            self.channel.post(frame)

    @property
    def accepts(self) -> bool:
        return not (self.killed or self.disconnected_at or self.overruns or self.retiring)

    @property
    def load(self) -> int:
        """How much it holds."""
        return sum(len(lane.held) for lane in self.lanes)

    @property
    def is_idle(self) -> bool:
        return not any(lane.held for lane in self.lanes)

    @property
    def is_free(self) -> bool:
        """Whether what it is given now begins at once."""
        return self.is_up and self.is_idle and all(lane.accepts for lane in self.lanes)

    @property
    def given_at(self) -> float:
        """When it was last given something, or born."""
        return max(self.born_at, *(lane.given_at for lane in self.lanes))

    def dismiss(self) -> None:
        """Tell it that nothing comes any more; it ends by itself."""
        if not (self.dismissed or self.disconnected_at):
            self.dismissed = True
            with contextlib.suppress(OSError):
                self.channel.sock.shutdown(socket.SHUT_WR)

    def is_stuck(self, now: float) -> bool:
        """Whether nothing goes on in it, so that it is not known which of its runs is to blame."""
        beaten_at = self.lanes[0].marks.beaten_at
        return len(self.lanes) > 1 and now - beaten_at > STUCK_SECONDS

    @property
    def is_up(self) -> bool:
        """Whether it has been ready for jobs."""
        return self.lanes[0].marks.beaten_at > 0.0

    def watch(self, now: float) -> None:
        """Look at all lanes. Time in which the parent itself did not go on counts little."""
        seconds = min(now - self.looked_at, LONGEST_LOOK)
        if self.channel.is_amid and self.channel.received != self.received:
            seconds = 0.0  # what it has to say is on its way
        self.looked_at, self.received = now, self.channel.received
        for lane in self.lanes:
            lane.watch(seconds)

    def kill(self, why: str, number: int = 0, *, fault: str = "") -> None:
        """End it and everything it started, for the sake of the job with a number.

        ``fault``: what is wrong with the child itself, which perhaps no job is to blame for.
        """
        if self.killed:
            return
        self.killed, self.culprit, self.fault = why, number, fault
        kill_group(self.pid)
