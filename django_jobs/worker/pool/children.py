"""The parent's view of its children: the leases in their lanes, and which jobs have begun."""

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
    NO_REPORT,
    RAN,
    BadFrame,
    check_settled_or_skipped,
    lease_to_tuple,
    read_report,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.messages import RunReport
    from django_jobs.worker.pool.shared_memory import Marks

    TimedReport = tuple[RunReport, tuple[int, int]]

FENCE_SHARE = 6  # no job runs in this last part of its lease
KILL_SHARE = 12  # nor may one that is being cancelled in this part
NEIGHBOUR_GRACE = 2.0  # jobs beside an overrun may end within this time
STUCK_SECONDS = 1.5
PROMPT_SECONDS = 0.05
LONGEST_LOOK = 1.0


@dataclass(slots=True)
class Held:
    """A lease, and when it ends at the earliest, on this machine's monotonic clock."""

    lease: Lease
    seconds: float
    ends: float
    handler: str

    @classmethod
    def of(cls, lease: Lease, seconds: float, ends: float) -> Held:
        return cls(lease, seconds, ends, str(lease.message.index.get("handler", "")))

    @property
    def fence(self) -> float:
        """The moment from which the job must not run."""
        return self.ends - self.seconds / FENCE_SHARE


@dataclass(slots=True, eq=False)
class Lane:
    """Jobs that a child runs one after the other; it has a lane for each job it runs at once."""

    child: Child
    index: int
    marks: Marks
    held: OrderedDict[int, Held] = field(default_factory=OrderedDict)
    revoked: set[int] = field(default_factory=set)
    given_at: float = 0.0
    stop_request: tuple[int, float] = (0, 0.0)
    quiet: float = 0.0
    progress: tuple[int, ...] = ()

    def give(self, leases: Sequence[Held]) -> None:
        """Add leases to the child's next frame."""
        self.given_at = time.monotonic()
        for held in leases:
            number = self.child.next_number()
            self.held[number] = held
            lease = lease_to_tuple(held.lease)
            self.child.outbox.append((self.index, number, held.seconds, lease))
        self.marks.hold_until(self.fence)

    @property
    def fence(self) -> float:
        """The earliest moment from which one of its jobs must not run."""
        return min((held.fence for held in self.held.values()), default=0.0)

    @property
    def accepts(self) -> bool:
        return self.child.accepts and not self.revoked

    def running(self) -> tuple[int, Held] | None:
        """The job that has begun and not ended."""
        started = self.marks.started
        held = self.held.get(started) if started > self.marks.finished else None
        return None if held is None else (started, held)

    @property
    def is_occupied(self) -> bool:
        """Whether a handler runs, which may take as long as its job allows."""
        return self.running() is not None and self.marks.deadline > 0.0

    @property
    def has_unreported(self) -> bool:
        """Whether it has ended a job and its report has not arrived."""
        return bool(self.held) and next(iter(self.held)) <= self.marks.finished

    def watch(self, seconds: float) -> None:
        """Count how long it has had something to do without making progress."""
        owes = self.held or self.revoked or self.child.dismissed
        first = next(iter(self.held), 0)
        progress = (self.marks.started, self.marks.finished, first, len(self.revoked))
        if not owes or self.is_occupied or progress != self.progress:
            self.quiet, self.progress = 0.0, progress
        else:
            self.quiet += seconds

    def is_running_since(self, moment: float) -> bool:
        """Whether its running job began before a moment on the monotonic clock."""
        return self.running() is not None and self.marks.began_at < moment

    def begun(self) -> list[int]:
        """The jobs that it really ran and whose end it has not reported.

        Usually one; more if the parent stopped reading before the child died.
        """
        ran = self.marks.ran
        return [number for number in self.held if number <= ran]

    def makes_wait(self, now: float) -> bool:
        """Whether a job that it holds may have to wait.

        The first job begins at once, unless the process is busy with something else.
        """
        return len(self.held) > 1 or bool(self.held and now - self.given_at > PROMPT_SECONDS)

    def unstarted(self) -> list[int]:
        started = self.marks.started
        return [number for number in self.held if number > started]

    def take_back(self, count: int) -> list[Held]:
        """Take back the last ``count`` jobs that it has not begun by now.

        It gets nothing new until it has passed over all of them.
        """
        numbers = self.unstarted()[-count:] if count > 0 else []
        if not numbers:
            return []
        started = self.marks.take_back_from(numbers[0])
        self.revoked.update(numbers)
        return [self.held.pop(number) for number in numbers if number > started]

    def take_back_all(self) -> list[Held]:
        return self.take_back(len(self.held))

    def pop(self, number: int) -> Held | None:
        """Remove and return the job with a number; None if it was taken back.

        The child reports numbers in their order, run or not; raises BadFrame if one is left out.
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
        """Ask the running job to stop; it is killed at ``kill_at`` if it does not."""
        if self.stop_request[0] != number:
            self.stop_request = (number, kill_at)
            self.marks.ask_to_stop(number)

    def stop(self, why: str, number: int) -> None:
        """End its running job: kill a child of one lane, otherwise first cancel only this job."""
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
    """A run that has to end, in a child that runs other jobs too."""

    number: int
    why: str
    kill_at: float


@dataclass(slots=True, eq=False)
class Child:
    """One child process. ``isolated``: it is for jobs that have to run alone, one at a time."""

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
    last_report: RunReport = NO_REPORT
    last_terms: tuple[Any, ...] | None = None
    last_number: int = 0
    ended_jobs: int = 0
    retiring: str = ""
    replaced: bool = False
    dismissed: bool = False
    looked_at: float = 0.0
    received: int = 0

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def hand_over(self) -> None:
        """Send the leases added to its lanes; they count as handed over even if it is gone."""
        if self.outbox:
            frame, self.outbox = self.outbox, []
            self.post(("run", frame))

    def read_frame(self, frame: Any) -> tuple[Held | None, TimedReport | None]:
        """The job that a frame is about, and the report of its run if it has to be settled.

        Raises BadFrame for a frame that is not of the protocol: a value of another type would
        raise in the store's thread, on which all jobs of this worker depend.
        """
        try:
            index, number, kind = frame[:3]
            if kind == ALIKE:
                _, _, _, started, lasted = frame
                finished = started + lasted
            elif kind == RAN:
                _, _, _, outcome, terms, counts, (started, finished) = frame
                same_terms = self.last_report.terms if terms == self.last_terms else None
                self.last_report = read_report(outcome, terms, counts, same_terms)
                self.last_terms = terms
            else:
                check_settled_or_skipped(kind, frame)
                return self.lanes[index].pop(number), None
            if (started | finished) >> MOMENT_BITS:  # negative, or beyond any store
                raise BadFrame(f"a run from {started} to {finished}")  # noqa: TRY301 - as the others
            return self.lanes[index].pop(number), (self.last_report, (started, finished))
        except BadFrame:
            raise
        except Exception as error:  # a foreign frame may raise any of them
            raise BadFrame(f"a frame of another shape: {error!r}") from error

    def post(self, frame: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):  # its death will be reported, and returns its jobs
            self.channel.post(frame)

    @property
    def accepts(self) -> bool:
        return not (self.killed or self.disconnected_at or self.overruns or self.retiring)

    @property
    def load(self) -> int:
        """How many jobs it holds."""
        return sum(len(lane.held) for lane in self.lanes)

    @property
    def is_idle(self) -> bool:
        return not any(lane.held for lane in self.lanes)

    @property
    def is_free(self) -> bool:
        """Whether a job handed over now begins at once."""
        return self.is_up and self.is_idle and all(lane.accepts for lane in self.lanes)

    @property
    def given_at(self) -> float:
        """When it was last given a job, or born."""
        return max(self.born_at, *(lane.given_at for lane in self.lanes))

    def dismiss(self) -> None:
        """Close the sending side: no more jobs come, and it ends by itself."""
        if not (self.dismissed or self.disconnected_at):
            self.dismissed = True
            with contextlib.suppress(OSError):
                self.channel.sock.shutdown(socket.SHUT_WR)

    def is_stuck(self, now: float) -> bool:
        """Whether its event loop stands still, so that any of its runs may be the cause."""
        beaten_at = self.lanes[0].marks.beaten_at
        return len(self.lanes) > 1 and now - beaten_at > STUCK_SECONDS

    @property
    def is_up(self) -> bool:
        """Whether it has reported ready for jobs."""
        return self.lanes[0].marks.beaten_at > 0.0

    def watch(self, now: float) -> None:
        """Watch all lanes. Time in which the parent itself was stopped counts little."""
        seconds = min(now - self.looked_at, LONGEST_LOOK)
        if self.channel.is_mid_frame and self.channel.received != self.received:
            seconds = 0.0  # a frame is arriving
        self.looked_at, self.received = now, self.channel.received
        for lane in self.lanes:
            lane.watch(seconds)

    def kill(self, why: str, number: int = 0, *, fault: str = "") -> None:
        """Kill it and everything it started, because of the job with this number.

        ``fault``: what is wrong with the child itself, perhaps through no fault of a job.
        """
        if self.killed:
            return
        self.killed, self.culprit, self.fault = why, number, fault
        kill_group(self.pid)
