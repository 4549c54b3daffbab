"""The parent's loop: watches pipes, signals and deadlines, and never makes a blocking call.

``dispatch`` decides which child gets which job, ``deadlines`` what is killed, ``lifecycle`` how
processes start and end, ``settlement`` passes outcomes to the store, and ``store_threads`` talk
to it.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Settled
from django_jobs.telemetry import events
from django_jobs.worker.events import emit_claimed
from django_jobs.worker.pool import deadlines
from django_jobs.worker.pool.children import Held
from django_jobs.worker.pool.dispatch import Dispatch
from django_jobs.worker.pool.lifecycle import (
    MOST_FAILURES,
    ChildSlots,
    Processes,
    Recycling,
    settle_death,
)
from django_jobs.worker.pool.messages import SKIPPED, BadFrame
from django_jobs.worker.pool.side_processes import SchedulerProcess, SignalProcess
from django_jobs.worker.pool.thread_messages import (
    NOT_IDLE,
    AllDone,
    Fetched,
    StopAsked,
)
from django_jobs.worker.stop import NOTHING_DUE, ONE_CYCLE, EndConditions

if TYPE_CHECKING:
    from django_jobs.worker.pool.children import Child
    from django_jobs.worker.pool.forkserver import ForkServer
    from django_jobs.worker.pool.lifecycle import ChildLimits
    from django_jobs.worker.pool.settlement import Settlement
    from django_jobs.worker.pool.shared_memory import Places
    from django_jobs.worker.pool.store_threads import StoreThreads
    from django_jobs.worker.pool.thread_messages import Idle, Renewed, WakePipe
    from django_jobs.worker.stop import Stop, WorkerLimits

URGENT_PATIENCE = 2.0
REST_SECONDS = 0.002
LOOK_EVERY_SECONDS = 0.01


class Supervisor:
    """Runs a worker of several processes."""

    def __init__(
        self,
        *,
        server: ForkServer,
        places: Places,
        child_limits: ChildLimits,
        store: StoreThreads,
        settlement: Settlement,
        stop: Stop,
        limits: WorkerLimits,
        wake: WakePipe,
    ) -> None:
        self.broken = ""
        self._server = server
        self._store = store
        self._settlement = settlement
        self._stop = stop
        self._limits = limits
        self._wake = wake
        self._selector = selectors.DefaultSelector()
        self.signal_process = SignalProcess(server, places.signal_process, self._selector)
        self._scheduler = SchedulerProcess(
            server, places.scheduler_process, wanted=bool(places.cron)
        )
        self._slots = ChildSlots(server, places, self._selector, self._on_child, self._on_death)
        self._failures = self._slots.failures
        self._processes = Processes(server, [*self._slots, self.signal_process, self._scheduler])
        self._children = self._slots.by_slot
        self._dispatch = Dispatch(self._children, settlement, places, child_limits)
        self._recycling = Recycling(child_limits, self._slots, self._dispatch)
        self._received = 0
        self._conditions = EndConditions(stop, limits)
        self._why = ""
        self._idle_since = self._look_at = 0.0
        if limits.until_empty:
            store.wait_for_limits()
        for slot in range(places.processes):
            self._slots.request(slot)

    def run(self) -> str:
        """Work until a stop signal or a limit; returns why it ended."""
        self._selector.register(self._wake, selectors.EVENT_READ, self._on_wake)
        self._selector.register(self._server, selectors.EVENT_READ, self._on_news)
        signal.set_wakeup_fd(self._wake.writes, warn_on_full_buffer=False)
        try:
            while not self._is_over():
                self._step()
        finally:
            signal.set_wakeup_fd(-1)
            self._end()
        return self.broken or self._why

    def _step(self) -> None:
        self._why = self._why or self._begun_to_end()
        if self._stop.urgent:
            for child in self._children.values():
                child.kill("stop")
            self._scheduler.hurry()
        if self._why:
            self._dispatch.return_all("the worker stops")
            self._scheduler.leave()
        else:
            self._recycling.step()
            self._slots.step()
            self._dispatch.lack_lanes = self._store.lacks_lanes
            self._dispatch.step()
            self._scheduler.step()
            self._slots.request_isolated(needed=self._dispatch.lacks_isolated)
        self._settlement.flush()
        self.signal_process.step()
        self._store.request_leases(self._received, *self._wanted())
        for child in self._children.values():
            self._slots.listen(child)
        if self._dispatch.has_work_for(2 * REST_SECONDS):
            # Each child has plenty to do and reports every job: reading many reports at once
            # costs a fraction of waking up for each.
            time.sleep(REST_SECONDS)
        pause = 0.0 if self._store.news else deadlines.select_timeout(self._children.values())
        for key, _ in self._selector.select(pause):
            key.data()
        self._settlement.flush()
        if (now := time.monotonic()) >= self._look_at:  # it goes through all leases
            self._look_at = now + LOOK_EVERY_SECONDS
            deadlines.enforce_deadlines(self._children.values(), self._dispatch)
        self._store.cut_if_hung()

    # ------------------------------------------------------------------------------- the end

    def _begun_to_end(self) -> str:
        """The reason to end, if there is one; then logs how many jobs still run."""
        if why := self._reason_to_end():
            lanes = (lane for child in self._children.values() for lane in child.lanes)
            if running := sum(bool(lane.begun()) for lane in lanes):
                events.emit(events.WorkerStopping(running=running, why=why))
        return why

    def _reason_to_end(self) -> str:
        limits, processed = self._limits, self._settlement.processed
        if self._failures.count >= MOST_FAILURES:
            self._break(f"children die as soon as they are born: {self._failures.last}")
        if self._store.failed is not None:
            self._break(f"the thread for the store ended: {self._store.failed!r}")
        asked = self._conditions.reason(processed, draining=self._store.draining)
        if self.broken or asked:
            return self.broken or asked
        if limits.once and processed:
            return ONE_CYCLE
        return NOTHING_DUE if (limits.once or limits.until_empty) and self._nothing_due() else ""

    def _break(self, why: str) -> None:
        self.broken = self.broken or why

    def _nothing_due(self) -> bool:
        idle = self._store.empty and not self._outstanding()
        if idle and self._settlement.back_at:  # jobs that were put off here have to run too
            idle = False
            if time.monotonic() >= self._settlement.back_at:
                self._settlement.back_at = 0.0
                self._store.look_again()
        return self._store.nothing_comes(idle=idle)

    def _outstanding(self) -> int:
        fetched = self._store.fetching + len(self._store.news)
        return fetched + self._dispatch.outstanding() + self._settlement.open

    def _is_over(self) -> bool:
        if not self._why:
            return False
        if not self._outstanding() or self._store.failed is not None:
            if not self._scheduler.is_over():
                return bool(self.broken)
            return bool(self._stop.urgent or self.broken or self.signal_process.is_over())
        if not all(child.is_idle for child in self._children.values()):
            self._idle_since = 0.0
            return False
        # Only settles are left. The leases of those that do not get through will expire.
        self._idle_since = self._idle_since or time.monotonic()
        return time.monotonic() - self._idle_since > self._patience()

    def _patience(self) -> float:
        return URGENT_PATIENCE if self._stop.urgent else self._store.shortest_lease

    def _end(self) -> None:
        self._slots.close()
        self.signal_process.end()
        self._scheduler.end()
        self._store.end(patience=URGENT_PATIENCE)
        self._server.close()
        self._selector.close()

    # ------------------------------------------------------------------------------ the store

    def _wanted(self) -> tuple[int, Idle]:
        """How many more leases could be used, and the idle lanes."""
        most = self._most()
        if not most:
            return 0, NOT_IDLE
        wanted = self._dispatch.wanted(has_plenty=self._store.has_plenty)
        limited = self._store.has_limited
        idle = self._dispatch.idle(self._received, most) if limited else NOT_IDLE
        return min(wanted, most), idle

    def _most(self) -> int:
        """How many more leases this worker may have, however many it could use."""
        # Ended jobs could not be settled, and would only pile up.
        if self._why or self._store.settles_nothing or self._settlement.has_plenty:
            return 0
        limit = 1 if self._limits.once else self._limits.max_jobs
        if limit is None:
            return sys.maxsize
        held = self._dispatch.outstanding() + self._settlement.open
        return max(limit - self._settlement.processed - held, 0)

    def _on_wake(self) -> None:
        self._wake.drain()
        news = self._store.news
        while news:
            message = news.popleft()
            if isinstance(message, Fetched):
                self._received += len(message.leases)
                ends = message.asked_at + message.lease_seconds
                held = [Held.of(lease, message.lease_seconds, ends) for lease in message.leases]
                if time.monotonic() > ends - message.lease_seconds / 2:
                    for late in held:
                        self._settlement.give_back(late, "its claim took half of the lease")
                else:
                    self._dispatch.receive(held)
                emit_claimed(message.leases)
            elif isinstance(message, AllDone):
                self._settlement.done(message.settled)
            elif isinstance(message, StopAsked):
                deadlines.ask_to_stop(self._children.values(), self._dispatch, message)
            else:
                self._on_renewed(message)

    def _on_renewed(self, message: Renewed) -> None:
        def answer(held: Held) -> Settled | None:
            return message.answers.get((held.lease.id, held.lease.token))

        for child in self._children.values():
            deadlines.stop_lost(child, self._dispatch, lambda held: answer(held) is Settled.LOST)
        for held in list(self._dispatch.ready):
            if answer(held) is Settled.LOST:
                self._dispatch.drop(held, "its lease was lost")
        for held in self._dispatch.held():
            if answer(held) is Settled.SETTLED:
                held.ends = message.asked_at + held.seconds

    # --------------------------------------------------------------------------- the children

    def _on_child(self, child: Child) -> None:
        if child.disconnected_at or self._children.get(child.slot) is not child:
            return  # it has just ended
        try:
            child.channel.flush()
            frames = child.channel.receive_ready()
        except (EOFError, OSError):
            self._slots.disconnect(child)
        else:
            self._on_frames(child, frames)
        if not self._why:
            self._recycling.check(child)

    def _on_frames(self, child: Child, frames: list[Any]) -> None:
        """Process frames until one is not of the protocol; then kill the child."""
        try:
            for frame in frames:
                self._on_frame(child, frame)
        except BadFrame as error:
            child.channel.garbled = str(error)
        if child.channel.garbled:
            self._slots.disconnect(child)
            fault = f"what it sent cannot be read: {child.channel.garbled}"
            child.kill("garbled", fault=fault)

    def _on_frame(self, child: Child, frame: Any) -> None:
        held, timed_report = child.read_frame(frame)
        if held is None:
            return
        if frame[2] == SKIPPED:
            self._dispatch.ready.appendleft(held)
            return
        if self._failures.count:
            self._failures.clear()
        child.ended_jobs += 1
        if timed_report is None:
            _, _, _, status, seconds = frame
            self._dispatch.observe(held, seconds)
            self._settlement.settled_by(child, held, status, seconds)
            return
        report, (started, finished) = timed_report
        self._dispatch.observe(held, max(finished - started, 1) / 1e6)
        self._settlement.ran(held, child, report, (started, finished))

    def _on_news(self) -> None:
        try:
            self._processes.read_news()
        except (EOFError, OSError):
            self._selector.unregister(self._server)
            self._break("the process from which children come ended")
            self._slots.end_all()

    def _on_death(self, child: Child, how: str) -> None:
        with contextlib.suppress(OSError, BadFrame):
            for frame in child.channel.receive_rest():  # its last frames still count
                self._on_frame(child, frame)
        self._slots.remove(child, how)
        settle_death(child, how, self._settlement, self._dispatch)
        if not (self._why or self.broken or child.isolated or child.replaced):
            self._slots.request(child.slot)
