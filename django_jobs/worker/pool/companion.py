"""The child that ticks for schedules beside a worker's jobs, so that the parent never does.

It comes from the nursery as children do, and is replaced when it dies. When the parent is about
to go, it says so, and the child ends after the inline jobs that it runs; when the parent
is in a hurry, or gone, it ends at once and gives these jobs back.
"""

from __future__ import annotations

import contextlib
import select
import time
from typing import TYPE_CHECKING, Any

from django_jobs.telemetry import events
from django_jobs.worker.pool.crew import kill_group, told_end

if TYPE_CHECKING:
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.nursery import Nursery

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


def tend(channel: Channel) -> None:
    """The child's own end: tick until the parent says that it is over, or has gone."""
    from django_jobs.cron.loop import Loop  # noqa: PLC0415 - a scheduler is built upon workers

    wishes = _Wishes(channel)
    Loop(stopped=wishes.is_over, hurried=wishes.is_urgent).run()


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
