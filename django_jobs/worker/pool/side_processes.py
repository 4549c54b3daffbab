"""The process that sends the public signals, so that the parent runs no user code.

It comes from the nursery as children do, when there is something to tell, and is let go
when there has been nothing for a while. It has nothing to do with jobs: a receiver that
hangs is killed and hinders none of them.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from django_jobs.telemetry import events
from django_jobs.worker import signals
from django_jobs.worker.pool.children import kill_group, told_end
from django_jobs.worker.pool.forkserver import LEAVE_SECONDS

if TYPE_CHECKING:
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.forkserver import Nursery


MOST_WAITING = 1000
MOST_FAILURES = 3
BIRTH_SECONDS = 60.0
IDLE_SECONDS = 30.0
KILL_GRACE = 2.0
END_PATIENCE = 30.0
_READY = _HEARD = True


class Herald:
    """The parent's end. It never waits: ``step`` is called again and again."""

    def __init__(self, nursery: Nursery, slot: int, selector: selectors.BaseSelector) -> None:
        self._nursery = nursery
        self._slot = slot
        self._selector = selector
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._told: tuple[str, dict[str, Any]] | None = None
        self._channel: Channel | None = None
        self._pid = 0
        self._is_ready = False
        self._late_at = self._idle_until = self._ends_at = 0.0
        self._failures = 0

    def tell(self, name: str, facts: dict[str, Any]) -> None:
        """Let a signal be sent."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((name, facts))
        else:
            signals.lost(name, facts, f"{MOST_WAITING} others wait to be told")

    def step(self) -> None:
        """Do what is to be done now."""
        now = time.monotonic()
        if self._pid and self._late_at and now > self._late_at:
            kill_group(self._pid)
            self._late_at = 0.0
        elif self._channel is not None:
            self._go_on(self._channel, now)
        elif self._waiting and not self._pid:
            self._call(now)

    def hears(self, kind: str, who: int, *_rest: Any) -> bool:
        """News of the nursery; False when they are about somebody else."""
        if kind == "ended":
            if who != self._pid:
                return False
            self._gone()
        elif who != self._slot:
            return False
        elif kind == "born":
            (self._pid,) = _rest
        else:
            self._gone()
        return True

    def is_over(self) -> bool:
        """Whether a worker that ends need wait for it no longer."""
        if not (self._waiting or self._told):
            return True
        self._ends_at = self._ends_at or time.monotonic() + END_PATIENCE
        return time.monotonic() > self._ends_at

    def close(self) -> None:
        """Nothing more is told."""
        if self._told and self._pid:
            kill_group(self._pid)
        self._leave()
        for name, facts in [self._told, *self._waiting] if self._told else self._waiting:
            signals.lost(name, facts, "the worker ended before")

    def _call(self, now: float) -> None:
        self._is_ready = False
        try:
            self._channel = self._nursery.ask(self._slot)
        except OSError:
            self._gone()
            return
        self._late_at = now + BIRTH_SECONDS
        self._selector.register(self._channel, selectors.EVENT_READ, self._on_readable)

    def _go_on(self, channel: Channel, now: float) -> None:
        if not self._is_ready:
            return
        with contextlib.suppress(OSError):  # its end is on the way
            if self._told is not None:
                channel.flush()
            elif self._waiting:
                self._told = self._waiting.popleft()
                self._late_at = now + signals.RECEIVERS_SECONDS + KILL_GRACE
                channel.post(self._told)
            elif now > self._idle_until:
                self._leave()

    def _on_readable(self) -> None:
        if self._channel is None:
            return
        try:
            frames = self._channel.receive_ready()
        except (EOFError, OSError):
            self._leave()
            return
        if self._channel.garbled:  # a receiver wrote to it; nobody knows what was sent
            self._leave()
        elif frames:
            self._is_ready, self._told, self._late_at, self._failures = True, None, 0.0, 0
            self._idle_until = time.monotonic() + IDLE_SECONDS

    def _leave(self) -> None:
        if self._channel is not None:
            self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None
            self._late_at = time.monotonic() + LEAVE_SECONDS

    def _gone(self) -> None:
        """It has ended, or was not born."""
        if self._channel is not None and self._channel.receive_rest():
            self._is_ready, self._told = True, None  # what it said last still counts
        self._leave()
        self._pid, self._late_at = 0, 0.0
        if self._told:
            signals.lost(*self._told, "the process that told it ended, or had to be killed")
            self._told = None
        elif not self._is_ready:
            self._failures += 1
        if self._failures >= MOST_FAILURES:
            while self._waiting:
                signals.lost(*self._waiting.popleft(), "no process could be started to tell it")
            self._failures = 0


def recite(channel: Channel) -> None:
    """The herald's own end: send what it is told to, one signal after the other."""
    with contextlib.suppress(EOFError, ConnectionError):  # the parent needs it no more
        channel.send(_READY)
        while True:
            name, facts = channel.receive()
            signals.send_here(name, facts)
            channel.send(_HEARD)


# The child that ticks for schedules beside a worker's jobs, so that the parent never does.
#
# It comes from the nursery as children do, and is replaced when it dies. When the parent is about
# to go, it says so, and the child ends after the inline jobs that it runs; when the parent
# is in a hurry, or gone, it ends at once and gives these jobs back.


FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
HURRY_SECONDS = 2.0
_LEAVE = "leave"


class Scheduler:
    """The parent's end. It never waits: ``step`` is called again and again."""

    def __init__(self, nursery: Nursery, slot: int, *, wanted: bool) -> None:
        self._nursery = nursery
        self._slot = slot
        self._wanted = wanted
        self._channel: Channel | None = None
        self._pid = 0
        self._born_at = self._wish_at = 0.0
        self._pause = FIRST_PAUSE
        self._killed_at = float("inf")

    def step(self) -> None:
        """Have it born, if it is to be."""
        now = time.monotonic()
        if not self._wanted or self._channel is not None or now < self._wish_at:
            return
        try:
            self._channel = self._nursery.ask(self._slot)
        except OSError:
            self._gone(now)

    def hears(self, kind: str, who: int, *rest: Any) -> bool:
        """News of the nursery; False when they are about somebody else."""
        now = time.monotonic()
        if kind == "ended":
            if who != self._pid:
                return False
            if self._wanted:
                how = told_end(rest[0])
                why = "it ticks for schedules"
                events.emit(
                    events.ChildDied(pid=who, how=how, why=why, job_id="schedules", returned=0)
                )
            self._gone(now)
        elif who != self._slot:
            return False
        elif kind == "born":
            (self._pid,), self._born_at = rest, now
        else:
            self._gone(now)
        return True

    def leave(self) -> None:
        """Let it end, and not come again."""
        if self._channel is not None and self._wanted:
            with contextlib.suppress(OSError):  # it has gone
                self._channel.post(_LEAVE)
        self._wanted = False

    def hurry(self) -> None:
        """Let it give back what it runs, and end."""
        self.leave()
        if self._channel is not None:
            self._channel.close()
        self._killed_at = min(self._killed_at, time.monotonic() + HURRY_SECONDS)

    def is_over(self) -> bool:
        """Whether it has ended, or has had its time."""
        return not self._pid or time.monotonic() >= self._killed_at

    def kill(self) -> None:
        """End it at once. Leases tell of what it ran."""
        self.hurry()
        if self._pid:
            kill_group(self._pid)

    def _gone(self, now: float) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._pid = None, 0
        if now - self._born_at > LONGEST_PAUSE:
            self._pause = FIRST_PAUSE
        self._wish_at = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


def tend(scheduler: str, channel: Channel) -> None:
    """The child's own end: tick until the parent says that it is over, or has gone."""
    wishes = _Wishes(channel)
    loop = import_string(scheduler)(stopped=wishes.is_over, hurried=wishes.is_urgent)
    loop.run()


class _Wishes:
    """What the parent has said: one word, and that it ends the conversation."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._over = self._urgent = False

    def is_over(self) -> bool:
        return self._over or self._looked()

    def is_urgent(self) -> bool:
        self._looked()
        return self._urgent

    def _looked(self) -> bool:
        try:
            if not self._urgent and select.select([self._channel], [], [], 0)[0]:
                self._over = True
                self._channel.receive_ready()
        except (EOFError, OSError):
            self._over = self._urgent = True
        return self._over
