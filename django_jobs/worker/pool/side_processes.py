"""Processes of a worker that run no jobs: one sends the signals, one ticks for schedules.

They come from the fork server as children do.
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
from django_jobs.worker.pool.forkserver import LEAVE_SECONDS
from django_jobs.worker.pool.lifecycle import Failures, Process

if TYPE_CHECKING:
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.forkserver import ForkServer


# The process that sends the public signals, so that the parent runs no user code.
#
# It is started when there is something to send, and is let go when there has been nothing for a
# while. It has nothing to do with jobs: a receiver that hangs is killed and hinders none of them.


MOST_WAITING = 1000
MOST_FAILURES = 3
BIRTH_SECONDS = 60.0
IDLE_SECONDS = 30.0
KILL_GRACE = 2.0
END_PATIENCE = 30.0
_READY = _DONE = True


class SignalProcess(Process):
    """The parent's end of the process that sends signals, one at a time."""

    def __init__(self, server: ForkServer, slot: int, selector: selectors.BaseSelector) -> None:
        super().__init__(server, slot, Failures())
        self._selector = selector
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._sending: tuple[str, dict[str, Any]] | None = None
        self._is_ready = False
        self._late_at = self._idle_until = self._ends_at = 0.0

    def send(self, name: str, facts: dict[str, Any]) -> None:
        """Let a signal be sent."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((name, facts))
        else:
            signals.lost(name, facts, f"{MOST_WAITING} others wait to be told")

    def step(self) -> None:
        now = time.monotonic()
        if self.pid and self._late_at and now > self._late_at:
            self.kill()
            self._late_at = 0.0
        elif self.channel is not None:
            self._go_on(self.channel, now)
        elif self._waiting and self.is_vacant:
            self.start()

    def start(self) -> None:
        self._is_ready = False
        super().start()
        if self.channel is not None:
            self._late_at = time.monotonic() + BIRTH_SECONDS
            self._selector.register(self.channel, selectors.EVENT_READ, self._on_readable)

    def failed(self, why: str) -> None:
        super().failed(why)
        self._give_up_in_the_end()

    def ended(self, how: str) -> None:
        if self.channel is not None and self.channel.receive_rest():
            self._is_ready, self._sending = True, None  # what it sent last still counts
        super().ended(how)
        self._late_at = 0.0
        if self._sending:
            signals.lost(*self._sending, "the process that told it ended, or had to be killed")
            self._sending = None
        elif not self._is_ready:
            self.failures.add(how)
        self._give_up_in_the_end()

    def close(self) -> None:
        """Send nothing more through it: it ends by itself, or is killed when it does not."""
        if self.channel is not None:
            self._selector.unregister(self.channel)
            self._late_at = time.monotonic() + LEAVE_SECONDS
        super().close()

    def is_over(self) -> bool:
        """Whether a worker that ends need wait for it no longer."""
        if not (self._waiting or self._sending):
            return True
        self._ends_at = self._ends_at or time.monotonic() + END_PATIENCE
        return time.monotonic() > self._ends_at

    def end(self) -> None:
        """The worker ends: nothing more is sent."""
        if self._sending:
            self.kill()
        self.close()
        for name, facts in [self._sending, *self._waiting] if self._sending else self._waiting:
            signals.lost(name, facts, "the worker ended before")

    def _go_on(self, channel: Channel, now: float) -> None:
        if not self._is_ready:
            return
        with contextlib.suppress(OSError):  # its end is on the way
            if self._sending is not None:
                channel.flush()
            elif self._waiting:
                self._sending = self._waiting.popleft()
                self._late_at = now + signals.RECEIVERS_SECONDS + KILL_GRACE
                channel.post(self._sending)
            elif now > self._idle_until:
                self.close()

    def _on_readable(self) -> None:
        if self.channel is None:
            return
        try:
            frames = self.channel.receive_ready()
        except (EOFError, OSError):
            self.close()
            return
        if self.channel.garbled:  # a receiver wrote to it; what was sent cannot be known
            self.close()
        elif frames:
            self._is_ready, self._sending, self._late_at = True, None, 0.0
            self.failures.clear()
            self._idle_until = time.monotonic() + IDLE_SECONDS

    def _give_up_in_the_end(self) -> None:
        if self.failures.count >= MOST_FAILURES:
            while self._waiting:
                signals.lost(*self._waiting.popleft(), "no process could be started to tell it")
            self.failures.clear()


def send_signals(channel: Channel) -> None:
    """The signal process's own end: send what it receives, one signal after the other."""
    with contextlib.suppress(EOFError, ConnectionError):  # the parent needs it no more
        channel.send(_READY)
        while True:
            name, facts = channel.receive()
            signals.send_here(name, facts)
            channel.send(_DONE)


# The process that ticks for schedules beside a worker's jobs, so that the parent never does.
#
# It is replaced when it dies. When the parent is about to go, it sends a word, and the process
# ends after the inline jobs that it runs; when the parent is in a hurry, or gone, it ends at once
# and gives these jobs back.


FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
HURRY_SECONDS = 2.0
_LEAVE = "leave"


class SchedulerProcess(Process):
    """The parent's end of the process that ticks."""

    def __init__(self, server: ForkServer, slot: int, *, wanted: bool) -> None:
        super().__init__(server, slot, Failures(FIRST_PAUSE, LONGEST_PAUSE))
        self._is_wanted = wanted
        self._killed_at = float("inf")
        self._request_if_wanted()

    def failed(self, why: str) -> None:
        super().failed(why)
        self._request_if_wanted()

    def ended(self, how: str) -> None:
        if self._is_wanted:
            why = "it ticks for schedules"
            events.emit(
                events.ChildDied(pid=self.pid, how=how, why=why, job_id="schedules", returned=0)
            )
        if time.monotonic() - self.born_at > LONGEST_PAUSE:
            self.failures.clear()
        self.failures.add(how)
        super().ended(how)
        self._request_if_wanted()

    def leave(self) -> None:
        """Let it end, and not come again."""
        if self.channel is not None and self._is_wanted:
            with contextlib.suppress(OSError):  # it has gone
                self.channel.post(_LEAVE)
        self._is_wanted = False
        self.withdraw()

    def hurry(self) -> None:
        """Let it give back what it runs, and end."""
        self.leave()
        self.close()
        self._killed_at = min(self._killed_at, time.monotonic() + HURRY_SECONDS)

    def is_over(self) -> bool:
        """Whether it has ended, or has had its time."""
        return not self.pid or time.monotonic() >= self._killed_at

    def end(self) -> None:
        """The worker ends, and it does at once. Leases tell of what it ran."""
        self.hurry()
        self.kill()

    def _request_if_wanted(self) -> None:
        if self._is_wanted:
            self.request()


def tick_schedules(scheduler: str, channel: Channel) -> None:
    """The scheduler process's own end: tick until the parent says that it is over, or has gone."""
    parent = _Parent(channel)
    loop = import_string(scheduler)(stopped=parent.wants_end, hurried=parent.is_urgent)
    loop.run()


class _Parent:
    """What the parent wants: it sends one word, and closes the channel when it is urgent."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._over = self._urgent = False

    def wants_end(self) -> bool:
        return self._over or self._read()

    def is_urgent(self) -> bool:
        self._read()
        return self._urgent

    def _read(self) -> bool:
        try:
            if not self._urgent and select.select([self._channel], [], [], 0)[0]:
                self._over = True
                self._channel.receive_ready()
        except (EOFError, OSError):
            self._over = self._urgent = True
        return self._over
