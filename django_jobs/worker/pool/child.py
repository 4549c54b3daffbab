"""A child: receives leases from the parent, runs one job at a time, reports each outcome."""

from __future__ import annotations

import atexit
import math
import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_jobs.execution.connections import keep_connections
from django_jobs.execution.output import keep_routers
from django_jobs.execution.process_state import ProcessState
from django_jobs.execution.timeout import keep_alarm
from django_jobs.telemetry import events
from django_jobs.worker.pool.async_child import LoopChild
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.forkserver import LEAVE_SECONDS
from django_jobs.worker.pool.messages import (
    SKIPPED,
    EndReporter,
    end_to_tuple,
    lease_from_tuple,
)
from django_jobs.worker.pool.shared_memory import Board
from django_jobs.worker.pool.side_processes import send_signals, tick_schedules

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.wire.envelope import Envelope
    from django_jobs.worker.executor import Executor
    from django_jobs.worker.pool.forkserver import ChildMain
    from django_jobs.worker.pool.shared_memory import Marks, Places


# For jobs that take microseconds, doing one step for many of them is faster than doing all steps
# for each: the step's code and data stay in the processor's caches.
TOGETHER = 16
SMALL_BODY = 4096
EXIT_SECONDS = LEAVE_SECONDS - 1


class _ParentGone(Exception):
    """The parent has closed the connection."""


class ChildMainLoop:
    """Runs one job after the other."""

    def __init__(self, executor: Executor, marks: Marks, channel: Channel) -> None:
        self._executor = executor
        self._channel = channel
        self._ends = EndReporter(self._send)
        self._marks = marks
        self._state = ProcessState()

    def run(self) -> None:
        """Run jobs until the parent closes the connection."""
        self._marks.beat(time.monotonic())
        with suppress(_ParentGone):
            while True:
                _, handed_over = self._receive()
                for first in range(0, len(handed_over), TOGETHER):
                    self._run_batch(handed_over[first : first + TOGETHER])

    def _run_batch(self, handed_over: Sequence[tuple[Any, ...]]) -> None:
        leases = [lease_from_tuple(fields) for *_, fields in handed_over]
        opened = [self._open(lease) for lease in leases]
        for (_, number, lease_seconds, _), lease, envelope in zip(
            handed_over, leases, opened, strict=True
        ):
            self._run_job(number, lease_seconds, lease, envelope)

    def _open(self, lease: Lease) -> Envelope | None:
        """Open a message before its job is marked as begun, unless its body is large.

        A large body might kill the process while no job is marked as the cause.
        """
        if len(lease.message.body) > SMALL_BODY:
            return None
        try:
            return self._executor.gatekeeper.believed(lease)
        except Exception:  # noqa: BLE001 - it recurs in the run, and is charged to the job
            return None

    def _run_job(
        self, number: int, lease_seconds: float, lease: Lease, envelope: Envelope | None
    ) -> None:
        if not self._marks.begin(number):
            self._send((0, number, SKIPPED))
            return
        execution = self._executor.run(lease, lease_seconds, envelope)
        end = end_to_tuple(execution)  # before the deadline is lifted
        self._marks.done(number)
        self._ends.report(0, number, end)
        self._state.restore()  # an error here must not be charged to the next job

    def _receive(self) -> Any:
        try:
            return self._channel.receive()
        except (EOFError, ConnectionError):
            raise _ParentGone from None

    def _send(self, frame: tuple[Any, ...]) -> None:
        try:
            self._channel.send(frame)
        except ConnectionError:  # it has ended, and needs no reports
            raise _ParentGone from None


def child_main(build: Callable[[], Executor], kill_grace: float, places: Places) -> ChildMain:
    """The function that the fork server runs in a new child."""
    without_jobs: dict[int, Callable[[Channel], None]] = {
        places.signal_process: send_signals,
        places.scheduler_process: partial(tick_schedules, places.cron),
    }

    def lane(executor: Executor, marks: Marks) -> tuple[Executor, Marks]:
        def starting(timeout: float | None) -> None:
            seconds = math.inf if timeout is None else timeout + kill_grace
            marks.run_until(time.monotonic() + seconds)

        executor = replace(
            executor,
            gatekeeper=replace(executor.gatekeeper, starting=starting),
            is_asked=lambda _lease: marks.is_asked,
            starting=starting,
        )
        return executor, marks

    def main(sock: socket.socket, slot: int, memory: int) -> None:
        random.seed()
        connections.close_all()
        if slot in without_jobs:
            os.close(memory)
            without_jobs[slot](Channel.for_child(sock))
            connections.close_all()
            run_exit_hooks()
            return
        keep_alarm()
        keep_routers()
        keep_connections()
        board = Board(memory, places.slots)
        os.close(memory)
        executor = build()
        lanes = [lane(executor, board.marks(place)) for place in places.of_child(slot)]
        os.environ["DJANGO_JOBS_CHILD"] = str(slot)
        channel = Channel.for_child(sock)
        if len(lanes) == 1:
            ChildMainLoop(*lanes[0], channel).run()
        else:
            LoopChild(lanes, channel).run()
        connections.close_all()
        run_exit_hooks()

    return main


def run_exit_hooks() -> None:
    """Run the hooks that libraries registered with ``atexit``, so that they flush their data.

    Processes of the fork server end by ``os._exit()``, which skips the hooks. They run in a thread,
    for a hook may hang; threads that hooks start are not waited for.
    """
    # multiprocessing calls this in its own forked children; there is no public function.
    hooks = threading.Thread(target=atexit._run_exitfuncs, daemon=True)  # noqa: SLF001 - as above
    hooks.start()
    hooks.join(EXIT_SECONDS)
    if hooks.is_alive():
        events.emit(events.ExitHooksCut(pid=os.getpid(), seconds=EXIT_SECONDS))
