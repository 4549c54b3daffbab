"""Processes of a worker that run no jobs: one sends signals, one ticks for schedules.

The fork server starts them as it starts children.
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

MOST_WAITING = 1000
MOST_FAILURES = 3
BIRTH_SECONDS = 60.0
IDLE_SECONDS = 30.0
KILL_GRACE = 2.0
END_PATIENCE = 30.0
_READY = _DONE = True


class SignalProcess(Process):
    """The parent's end of the process that sends signals, so that the parent runs no user code.

    It sends one at a time, starts when there is something to send, and ends after an idle time. A
    receiver that hangs is killed with the process; no job waits for it.
    """

    def __init__(self, server: ForkServer, slot: int, selector: selectors.BaseSelector) -> None:
        super().__init__(server, slot, Failures())
        self._selector = selector
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._sending: tuple[str, dict[str, Any]] | None = None
        self._is_ready = False
        self._late_at = self._idle_until = self._ends_at = 0.0

    def send(self, name: str, fields: dict[str, Any]) -> None:
        """Have a signal sent."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((name, fields))
        else:
            signals.emit_lost(name, fields, f"{MOST_WAITING} others wait to be sent")

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
            signals.emit_lost(*self._sending, "the process that sent it ended, or had to be killed")
            self._sending = None
        elif not self._is_ready:
            self.failures.add(how)
        self._give_up_in_the_end()

    def close(self) -> None:
        """Close its channel: it ends by itself, or is killed if it does not."""
        if self.channel is not None:
            self._selector.unregister(self.channel)
            self._late_at = time.monotonic() + LEAVE_SECONDS
        super().close()

    def is_over(self) -> bool:
        """Whether the end of the worker need not wait for it any longer."""
        if not (self._waiting or self._sending):
            return True
        self._ends_at = self._ends_at or time.monotonic() + END_PATIENCE
        return time.monotonic() > self._ends_at

    def end(self) -> None:
        """The worker ends: report the signals that were not sent."""
        if self._sending:
            self.kill()
        self.close()
        for name, fields in [self._sending, *self._waiting] if self._sending else self._waiting:
            signals.emit_lost(name, fields, "the worker ended before")

    def _go_on(self, channel: Channel, now: float) -> None:
        if not self._is_ready:
            return
        with contextlib.suppress(OSError):  # its death will be reported
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
        if self.channel.garbled:  # a receiver wrote to the socket; the rest is unreadable
            self.close()
        elif frames:
            self._is_ready, self._sending, self._late_at = True, None, 0.0
            self.failures.clear()
            self._idle_until = time.monotonic() + IDLE_SECONDS

    def _give_up_in_the_end(self) -> None:
        if self.failures.count >= MOST_FAILURES:
            while self._waiting:
                signals.emit_lost(
                    *self._waiting.popleft(), "no process could be started to send it"
                )
            self.failures.clear()


def send_signals(channel: Channel) -> None:
    """Run in the signal process: send the signals it receives, one after the other."""
    with contextlib.suppress(EOFError, ConnectionError):  # the parent has closed the channel
        channel.send(_READY)
        while True:
            name, fields = channel.receive()
            signals.send_here(name, fields)
            channel.send(_DONE)


FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
HURRY_SECONDS = 2.0
_LEAVE = "leave"


class SchedulerProcess(Process):
    """The parent's end of the process that ticks for schedules, so that the parent never does.

    It is replaced when it dies. When the worker ends, the parent sends one word, and the process
    ends after the inline jobs that it runs. When the parent closes the channel, it ends at once and
    gives these jobs back.
    """

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
        """Let it end, and not be replaced."""
        if self.channel is not None and self._is_wanted:
            with contextlib.suppress(OSError):  # it has ended
                self.channel.post(_LEAVE)
        self._is_wanted = False
        self.withdraw()

    def hurry(self) -> None:
        """Let it give back the jobs that it runs, and end."""
        self.leave()
        self.close()
        self._killed_at = min(self._killed_at, time.monotonic() + HURRY_SECONDS)

    def is_over(self) -> bool:
        """Whether it has ended, or its time to end is over."""
        return not self.pid or time.monotonic() >= self._killed_at

    def end(self) -> None:
        """The worker ends: kill it. The leases of jobs that it ran will expire."""
        self.hurry()
        self.kill()

    def _request_if_wanted(self) -> None:
        if self._is_wanted:
            self.request()


def tick_schedules(scheduler: str, channel: Channel) -> None:
    """Run in the scheduler process: tick until the parent asks it to end, or has gone."""
    parent = _Parent(channel)
    loop = import_string(scheduler)(stopped=parent.wants_end, hurried=parent.is_urgent)
    loop.run()


class _Parent:
    """The parent's requests: one word asks to end, a closed channel to end at once."""

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
