"""A child that runs several jobs at once: coroutines on one event loop, the rest in threads.

Each lane runs its jobs one after the other. The loop never runs plain handlers, so that it
can always send the parent a heartbeat.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from django_jobs.execution.process_state import ProcessState
from django_jobs.execution.shared_loop import Cut
from django_jobs.outcome import ASKED_TO_STOP
from django_jobs.worker.pool.messages import (
    SKIPPED,
    EndReporter,
    end_to_tuple,
    lease_from_tuple,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.worker.executor import Execution, Executor
    from django_jobs.worker.pool.channel import Channel
    from django_jobs.worker.pool.shared_memory import Marks

BEAT_SECONDS = 0.25
WHY_CUT = {
    "asked": ASKED_TO_STOP,
    "fence": "its lease could not be renewed in time",
    "lost": "its lease was lost",
    "timeout": "its time was up",
}


class LoopChild:
    """Runs jobs in lanes: one event loop, and one thread for each lane."""

    def __init__(self, lanes: Sequence[tuple[Executor, Marks]], channel: Channel) -> None:
        self._channel = channel
        self.ends = EndReporter(self.send)
        self._loop = asyncio.new_event_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._threads = ThreadPoolExecutor(len(lanes), thread_name_prefix="django_jobs-lane")
        self._lanes = [_Lane(self, index, *lane) for index, lane in enumerate(lanes)]
        _, self._first = lanes[0]
        self._state = ProcessState()
        self._running = 0

    def run(self) -> None:
        """Run jobs until the parent closes the connection."""
        asyncio.set_event_loop(self._loop)
        self._loop.add_reader(self._channel.fileno(), self._on_readable)
        self._beat()
        while not self._over.done():
            try:
                self._loop.run_until_complete(self._over)
            except (SystemExit, KeyboardInterrupt):
                # Raised in a task that a handler started: asyncio stops for it, we go on.
                if self._over.done():
                    raise

    def _beat(self) -> None:
        self._first.beat(time.monotonic())
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _on_readable(self) -> None:
        try:
            frames = self._channel.receive_ready()
        except (EOFError, ConnectionError):
            frames = None
        if frames is None or self._channel.garbled:
            self._loop.remove_reader(self._channel.fileno())
            self._end()
            return
        for kind, *parts in frames:
            if kind == "cancel":
                index, number, why = parts
                self._lanes[index].cancel(number, why)
            else:
                for index, *handed_over in parts[0]:
                    self._lanes[index].add(*handed_over)

    def spawn(self, lane: _Lane) -> None:
        self._loop.create_task(lane.work()).add_done_callback(self._on_lane_end)

    async def in_thread(self, executor: Executor, lease: Lease, lease_seconds: float) -> Execution:
        run = copy_context().run
        return await self._loop.run_in_executor(
            self._threads, run, self._executed, executor, lease, lease_seconds
        )

    def _executed(self, executor: Executor, lease: Lease, lease_seconds: float) -> Execution:
        try:
            return executor.run(lease, lease_seconds)
        finally:
            self._state.restore_mask()

    @contextmanager
    def running(self) -> Iterator[None]:
        """A lane runs a job. When no lane does, the state of the process is restored."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._state.restore()

    def send(self, frame: tuple[Any, ...]) -> None:
        try:
            self._channel.send(frame)
        except ConnectionError:  # the parent has ended, and needs no more to know
            self._end()

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _on_lane_end(self, task: asyncio.Task[None]) -> None:
        """What our own machinery raises ends the process, as in a child of one lane."""
        error = task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)


class _Lane:
    def __init__(self, child: LoopChild, index: int, executor: Executor, marks: Marks) -> None:
        self._child = child
        self._index = index
        self._executor = executor
        self._marks = marks
        self._waiting: deque[tuple[int, float, tuple[Any, ...]]] = deque()
        self._works = False
        self._running: tuple[int, Cut, asyncio.Task[Execution]] | None = None

    def add(self, number: int, lease_seconds: float, fields: tuple[Any, ...]) -> None:
        self._waiting.append((number, lease_seconds, fields))
        if not self._works:
            self._works = True
            self._child.spawn(self)

    def cancel(self, number: int, why: str) -> None:
        """End a coroutine. A thread cannot be stopped."""
        if self._running is not None and self._running[0] == number:
            _, cut, task = self._running
            cut.why, cut.timed_out = WHY_CUT.get(why, why), why == "timeout"
            task.cancel()

    async def work(self) -> None:
        """Run the waiting jobs, one after the other."""
        try:
            while self._waiting:
                number, lease_seconds, fields = self._waiting.popleft()
                if not self._marks.begin(number):
                    self._child.send((self._index, number, SKIPPED))
                    continue
                with self._child.running():
                    lease = lease_from_tuple(fields)
                    execution = await self._executed(number, lease, lease_seconds)
                    end = end_to_tuple(execution)  # before the deadline is lifted
                    self._marks.done(number)
                    self._child.ends.report(self._index, number, end)
        finally:
            self._works = False

    async def _executed(self, number: int, lease: Lease, lease_seconds: float) -> Execution:
        # The index is not verified yet; it only decides between loop and thread.
        key = lease.message.index.get("handler", "")
        handler = self._executor.gatekeeper.registry.get(str(key))
        if handler is None or not handler.is_coroutine:
            return await self._child.in_thread(self._executor, lease, lease_seconds)
        cut = Cut()
        # A task of its own, so that its context variables end with it.
        task = asyncio.create_task(self._executor.run_async(lease, lease_seconds, cut))
        self._running = number, cut, task
        try:
            return await task
        finally:
            self._running = None
