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

FENCE_SHARE = 6  # nothing runs in this last part of a lease


@dataclass(slots=True)
class Held:
    """A lease, and until when it certainly holds on this machine's monotonic clock."""

    lease: Lease
    seconds: float
    ends: float

    @property
    def fence(self) -> float:
        """The moment from which it must not be run."""
        return self.ends - self.seconds / FENCE_SHARE

    @property
    def handler(self) -> str:
        return str(self.lease.message.index.get("handler", ""))


@dataclass(slots=True, eq=False)
class Child:
    """One child process."""

    slot: int
    pid: int
    channel: Channel
    marks: Marks
    given: OrderedDict[int, Held] = field(default_factory=OrderedDict)
    revoked: set[int] = field(default_factory=set)
    killed: str = ""
    blamed: int = 0
    mute_since: float = 0.0
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
            self.channel.post(frame)

    @property
    def accepts(self) -> bool:
        return not (self.killed or self.mute_since or self.revoked)

    def running(self) -> tuple[int, Held] | None:
        """What it has begun and not ended."""
        started = self.marks.started
        held = self.given.get(started) if started > self.marks.finished else None
        return None if held is None else (started, held)

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

    def seen(self, number: int) -> Held | None:
        """It is done with a number, run or not; what it held by it, if that was not taken back."""
        self.revoked.discard(number)
        if not self.revoked:
            self.marks.allow_all()
        return self.given.pop(number, None)

    def kill(self, why: str, number: int = 0) -> None:
        """End it and everything it started, for the sake of the job with a number."""
        if self.killed:
            return
        self.killed, self.blamed = why, number
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)


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
