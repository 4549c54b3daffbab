"""The children as the parent knows them: what each was given, and what it has begun."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django_jobs.worker.pool.messages import lease_to_tuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.marks import Marks


@dataclass(slots=True)
class Held:
    """A lease, and until when it certainly holds on this machine's monotonic clock."""

    lease: Lease
    seconds: float
    ends: float


@dataclass(slots=True)
class Child:
    """One child process."""

    slot: int
    pid: int
    channel: Channel
    marks: Marks
    given: OrderedDict[int, Held] = field(default_factory=OrderedDict)
    revoked: set[int] = field(default_factory=set)
    killed: str = ""
    gone: bool = False
    born_at: float = 0.0
    last: int = 0

    def give(self, held: Sequence[Held]) -> None:
        """Hand leases over; a child that is gone gets them counted all the same."""
        frame = []
        for one in held:
            self.last += 1
            self.given[self.last] = one
            frame.append((self.last, one.seconds, lease_to_tuple(one.lease)))
        with contextlib.suppress(OSError):  # its end is on the way and returns them
            self.channel.send(frame)

    @property
    def accepts(self) -> bool:
        return not (self.killed or self.gone or self.revoked)

    def running(self) -> Held | None:
        """What it has begun and not ended."""
        started = self.marks.started
        return self.given.get(started) if started > self.marks.finished else None

    def unstarted(self) -> list[int]:
        started = self.marks.started
        return [number for number in self.given if number > started]

    def take_back(self, count: int) -> list[Held]:
        """The last so many of what it has not begun, if it still has not."""
        numbers = self.unstarted()[-count:]
        if not numbers or self.revoked:
            return []
        started = self.marks.take_back_from(numbers[0])
        returned = [number for number in numbers if number > started]
        self.revoked.update(numbers)
        return [self.given.pop(number) for number in returned]

    def skipped(self, number: int) -> None:
        """It came across a job that was taken back; when it has seen all, it may go on."""
        self.revoked.discard(number)
        if not self.revoked:
            self.marks.allow_all()

    def kill(self, why: str) -> None:
        """End it and everything it started."""
        if self.killed or self.gone:
            return
        self.killed = why
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


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
