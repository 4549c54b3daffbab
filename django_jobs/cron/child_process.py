"""Run user code of schedules, each piece in a process of its own, with a time limit.

``when`` gates and inline jobs never run in the scheduler: one that hangs, exits or crashes
ends only its own process. Where forking is safe the child is a copy of this process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

import django
from django.db import connections

from django_jobs.worker.pool import spawnserver
from django_jobs.worker.pool.forkserver import die_with_parent, leave_signals_to_parent

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

WHEN_SECONDS = 10.0
_LONGEST_LOOK_AWAY, _AFTER_ITS_END = 1.0, 0.001


class UserCodeProcess:
    """A process that answers one question, or is killed when its time is over."""

    def __init__(self, work: str, arguments: Sequence[Any], seconds: float | None) -> None:
        self.work = work
        self.arguments = arguments
        self.timed_out = False
        self._ends_at = None if seconds is None else time.monotonic() + seconds
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()  # two processes must not share one
        context: Any = multiprocessing.get_context("spawn" if spawnserver.is_needed() else "fork")
        self._ours, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(work, arguments, theirs, os.getpid()))
        self._process.start()
        theirs.close()

    def is_over(self) -> bool:
        """Whether it has ended; kills it when its time is over."""
        if not self._process.is_alive():
            return True
        if self._ends_at is not None and time.monotonic() > self._ends_at:
            self.timed_out = True
            self.kill()
            return True
        return False

    @property
    def seconds_left(self) -> float:
        """How long it may go unchecked."""
        if self._ends_at is None:
            return _LONGEST_LOOK_AWAY
        left = max(self._ends_at - time.monotonic(), 0.0)
        return min(left + _AFTER_ITS_END, _LONGEST_LOOK_AWAY)

    @property
    def end(self) -> int:
        """A handle to wait for that becomes ready when it ends."""
        ready: int = self._process.sentinel
        return ready

    def kill(self) -> None:
        """Kill it, and the processes it started."""
        if pid := self._process.pid:
            # Until it has made itself the leader of a group there is no such group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            self._process.kill()
        self._process.join()

    def answer(self) -> tuple[str, Any]:
        """``("returned", value)``, ``("raised", text)`` or ``("died", how)``, once it is over."""
        self._process.join()
        with contextlib.suppress(EOFError, OSError):
            if self._ours.poll():
                answer: tuple[str, Any] = self._ours.recv()
                return answer
        if self.timed_out:
            return "died", "it did not end in time and was killed"
        code = self._process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return "died", f"its process {how}"

    def close(self) -> None:
        """Release what the system keeps for it."""
        self._ours.close()
        self._process.close()


def wait_for_any(children: Collection[UserCodeProcess], longest: float) -> None:
    """Wait until one of them has ended or its time is over, for ``longest`` seconds at most."""
    seconds = min(longest, *(child.seconds_left for child in children))
    wait([child.end for child in children], seconds)


def _run(work: str, arguments: Sequence[Any], pipe: Any, parent: int) -> None:
    """What runs in the child."""
    os.setsid()
    die_with_parent(parent)
    leave_signals_to_parent()
    signal.set_wakeup_fd(-1)
    django.setup()
    from django_jobs.cron import child_work  # noqa: PLC0415 - knows models; see spawnserver

    try:
        answer = ("returned", child_work.WORK[work](*arguments))
    except Exception as error:  # noqa: BLE001 - user code; its parent writes it down
        answer = ("raised", f"{type(error).__name__}: {error}"[:1000])
    with contextlib.suppress(OSError):
        pipe.send(answer)
    connections.close_all()
