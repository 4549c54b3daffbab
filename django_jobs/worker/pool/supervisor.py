"""The parent's loop: pipes, signals and deadlines, and never a blocking call.

It hands leases to children, a few at a time while they are short, and takes back what
was not started when another child has nothing to do. A child that dies is replaced;
what it ran alone is charged, what it had not begun is handed to another.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Settled
from django_jobs.clock import SystemClock
from django_jobs.execution.outcome import Crashed, ErrorText, Failed, Interrupted
from django_jobs.worker.pool.crew import Child, Held, told_end
from django_jobs.worker.pool.marks import Marks
from django_jobs.worker.pool.messages import outcome_from_tuple, run_of, terms_to_tuple
from django_jobs.worker.pool.pace import Pace
from django_jobs.worker.pool.stores import Done, Fetched, by_child, drained

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Lease
    from django_jobs.execution.outcome import Outcome
    from django_jobs.wire.envelope import Envelope
    from django_jobs.worker.loop import Limits
    from django_jobs.worker.pool.nursery import Nursery
    from django_jobs.worker.pool.stores import Renewed, StoreThread
    from django_jobs.worker.settle import Run
    from django_jobs.worker.stop import Stop

LOOK_SECONDS = 0.25
FENCE_SHARE = 6  # a child is stopped this part of a lease before its lease may end
QUICK_DEATH_SECONDS = 1.0
QUICK_DEATHS = 10
_clock = SystemClock()


class Supervisor:
    """One worker of several processes."""

    def __init__(
        self,
        *,
        nursery: Nursery,
        memory: int,
        store: StoreThread,
        stop: Stop,
        limits: Limits,
        processes: int,
        wake: tuple[int, int],
        on_done: Callable[[Done], None],
        believe: Callable[[Lease], Envelope | None],
        worker: str,
    ) -> None:
        self.processed = 0
        self._nursery = nursery
        self._memory = memory
        self._store = store
        self._stop = stop
        self._limits = limits
        self._processes = processes
        self._wake, self._wake_writes = wake
        self._on_done = on_done
        self._believe = believe
        self._worker = worker
        self._children: dict[int, Child] = {}
        self._ready: deque[Held] = deque()
        self._settling = 0
        self._fetched = 0
        self._pace = Pace()
        self._selector = selectors.DefaultSelector()
        self._ends_at = time.monotonic() + (limits.max_seconds or float("inf"))
        self._why = ""
        self._deaths = 0

    def run(self) -> str:
        """Work until told to stop or a limit is reached; why it ended."""
        self._selector.register(self._wake, selectors.EVENT_READ, self._on_wake)
        self._selector.register(self._nursery, selectors.EVENT_READ, self._on_nursery)
        for slot in range(self._processes):
            self._spawn(slot)
        signal.set_wakeup_fd(self._wake_writes, warn_on_full_buffer=False)
        try:
            while not self._is_over():
                self._step()
        finally:
            signal.set_wakeup_fd(-1)
            self._end()
        return self._why

    def _step(self) -> None:
        self._look_at_limits()
        if self._why:
            self._give_back()
        else:
            self._balance()
            self._hand_over()
        self._wish()
        for key, _ in self._selector.select(self._pause()):
            key.data()
        self._look_at_clocks()

    # ------------------------------------------------------------------- beginning and end

    def _look_at_limits(self) -> None:
        if self._stop.urgent:
            for child in self._children.values():
                child.kill("stop")
        if self._why:
            return
        limits = self._limits
        if self._stop.asked.is_set():
            self._why = "a signal asked for it" if self._stop.signal_number else "asked to stop"
        elif limits.max_jobs is not None and self.processed >= limits.max_jobs:
            self._why = f"{limits.max_jobs} jobs were processed"
        elif limits.once and (self.processed or self._nothing_due()):
            self._why = "one cycle was asked for"
        elif time.monotonic() >= self._ends_at:
            self._why = f"{limits.max_seconds:g} seconds are over"
        elif limits.until_empty and self._nothing_due():
            self._why = "nothing is due"
        elif self._deaths >= QUICK_DEATHS:
            self._why = "children die as soon as they are born"

    def _nothing_due(self) -> bool:
        return self._store.empty and not self._outstanding()

    def _outstanding(self) -> int:
        given = sum(len(child.given) for child in self._children.values())
        return given + len(self._ready) + self._settling + len(self._store.news)

    def _is_over(self) -> bool:
        return bool(self._why) and not self._outstanding()

    def _give_back(self) -> None:
        """What has not begun goes back to the store, uncharged and to its old place."""
        for child in self._children.values():
            if not child.killed:
                self._ready.extend(child.take_back(len(child.given)))
        while self._ready:
            self._settle_uncharged(self._ready.popleft(), "the worker stops")

    def _end(self) -> None:
        store = self._store
        with store.changed:
            store.wishes.end = True
            store.changed.notify_all()
        self._nursery.close()
        store.thread.join(timeout=store.patience())
        self._selector.close()

    # --------------------------------------------------------------------- work and children

    def _spawn(self, slot: int) -> None:
        marks = Marks(self._memory, slot)
        marks.reset()
        pid, channel = self._nursery.spawn(slot)
        child = Child(slot, pid, channel, marks, born_at=time.monotonic())
        self._children[slot] = child
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._on_child(child))

    def _hand_over(self) -> None:
        for child in sorted(self._children.values(), key=lambda child: len(child.given)):
            if not self._ready:
                return
            if child.accepts:
                self._fill(child)

    def _fill(self, child: Child) -> None:
        head = self._ready[0].lease
        if head.suspect:
            if not child.given:
                child.give([self._ready.popleft()])
            return
        if any(held.lease.suspect for held in child.given.values()):
            return
        chunk = self._pace.chunk(str(head.message.index.get("handler", "")))
        room = chunk - len(child.given)
        # A child that still has half of its chunk needs nothing yet.
        if room <= 0 or (child.given and room < chunk // 2):
            return
        taken: list[Held] = []
        while self._ready and len(taken) < room and not self._ready[0].lease.suspect:
            taken.append(self._ready.popleft())
        child.give(taken)

    def _balance(self) -> None:
        """No job waits behind a busy child while another child is idle."""
        if self._ready or not any(c.accepts and not c.given for c in self._children.values()):
            return
        busiest = max(self._children.values(), key=lambda child: len(child.unstarted()))
        waiting = len(busiest.unstarted())
        if waiting and not busiest.killed:
            self._ready.extend(busiest.take_back((waiting + 1) // 2))

    def _wish(self) -> None:
        """Tell the store thread how many leases could be used."""
        outstanding = sum(len(child.given) for child in self._children.values()) + len(self._ready)
        wanted = 0 if self._why else max(self._pace.wanted(self._processes) - outstanding, 0)
        limit = 1 if self._limits.once else self._limits.max_jobs
        if limit is not None:
            wanted = min(wanted, max(limit - self.processed - self._outstanding(), 0))
        store = self._store
        if wanted != store.wishes.fetch:
            with store.changed:
                store.wishes.fetch = wanted
                store.changed.notify()

    # ---------------------------------------------------------------------------- news

    def _on_wake(self) -> None:
        drained(self._wake)
        news = self._store.news
        while news:
            fact = news.popleft()
            if isinstance(fact, Fetched):
                ends = fact.asked_at + fact.lease_seconds
                self._ready.extend(Held(x, fact.lease_seconds, ends) for x in fact.leases)
            elif isinstance(fact, Done):
                self._settling -= 1
                self.processed += not fact.uncharged
                self._on_done(fact)
            else:
                self._on_renewed(fact)

    def _on_renewed(self, fact: Renewed) -> None:
        for child in self._children.values():
            running = child.running()
            for number, held in list(child.given.items()):
                answer = fact.answers.get(held.lease.id)
                if answer is Settled.SETTLED:
                    held.ends = fact.asked_at + held.seconds
                elif answer is Settled.LOST and held is running:
                    child.kill("lost")
                elif answer is Settled.LOST and number > child.marks.started:
                    child.take_back(len(child.given))
        self._ready = deque(
            held for held in self._ready if fact.answers.get(held.lease.id) is not Settled.LOST
        )
        for held in self._ready:
            if fact.answers.get(held.lease.id) is Settled.SETTLED:
                held.ends = fact.asked_at + held.seconds

    def _on_child(self, child: Child) -> None:
        if child.gone:
            return
        try:
            for frame in child.channel.receive_ready():
                self._on_frame(child, frame)
        except (EOFError, OSError):
            # Its death is told by the nursery, with the reason.
            self._selector.unregister(child.channel)
            child.gone = True

    def _on_frame(self, child: Child, frame: tuple[Any, ...]) -> None:
        number, kind, *rest = frame
        if kind == "skipped":
            child.skipped(number)
            held = child.given.pop(number, None)
            if held is not None:
                self._ready.appendleft(held)
            return
        held = child.given.pop(number)
        child.skipped(number)
        handler = str(held.lease.message.index.get("handler", ""))
        if kind == "settled":
            status, seconds = rest
            self._pace.observe(handler, seconds)
            self.processed += 1
            self._store.forget(held.lease.id)
            self._on_done(by_child(held.lease, status, seconds, f"{self._worker}:{child.pid}"))
            return
        told, terms, counts, times = rest
        self._pace.observe(handler, max(times[1] - times[0], 1) / 1e6)
        run = run_of(held.lease, terms, counts, times, f"{self._worker}:{child.pid}")
        self._settle(run, outcome_from_tuple(told))

    def _on_nursery(self) -> None:
        ends = self._nursery.ends()
        while ends:
            for pid, status in ends:
                child = next((c for c in self._children.values() if c.pid == pid), None)
                if child is not None:
                    self._on_death(child, status)
            # Others may have been told while a replacement was asked for.
            ends = self._nursery.heard()

    def _on_death(self, child: Child, status: int) -> None:
        while not child.gone:
            self._on_child(child)  # what it said last still counts
        child.channel.close()
        started = child.marks.started
        for number, held in child.given.items():
            if number > started:
                self._ready.append(held)
            else:
                self._settle(self._cut_short(held, child), self._verdict_of_death(child, status))
        child.given.clear()
        quick = time.monotonic() - child.born_at < QUICK_DEATH_SECONDS and not started
        self._deaths = self._deaths + 1 if quick else 0
        del self._children[child.slot]
        if not self._stop.urgent:
            self._spawn(child.slot)

    def _verdict_of_death(self, child: Child, status: int) -> Outcome:
        if child.killed == "timeout":
            told = "the handler did not end in time and its process was killed"
            return Failed(ErrorText("JobTimeout", told), timed_out=True)
        if child.killed:
            return Interrupted(_WHY_KILLED[child.killed])
        return Crashed(told_end(status))

    # ---------------------------------------------------------------------------- clocks

    def _pause(self) -> float:
        if self._store.news:
            return 0.0
        return LOOK_SECONDS

    def _look_at_clocks(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            running = child.running()
            if running is None:
                continue
            deadline = child.marks.deadline
            if 0.0 < deadline < now:
                child.kill("timeout")
            elif now > running.ends - running.seconds / FENCE_SHARE:
                child.kill("fence")

    # ---------------------------------------------------------------------------- settling

    def _settle(self, run: Run, outcome: Outcome) -> None:
        self._settling += 1
        with self._store.changed:
            self._store.wishes.settle.append((run, outcome))
            self._store.changed.notify()

    def _settle_uncharged(self, held: Held, why: str) -> None:
        header, now = held.lease.message.header, _clock.now()
        counts = (header.attempts, header.crashes)
        self._settle(run_of(held.lease, None, counts, (now, now), self._worker), Interrupted(why))

    def _cut_short(self, held: Held, child: Child) -> Run:
        """A delivery whose child told nothing of it any more."""
        envelope, now = self._believe(held.lease), _clock.now()
        header = held.lease.message.header
        if envelope is not None:
            header = header.clamped(envelope.terms)
        counts = (header.attempts, header.crashes)
        worker = f"{self._worker}:{child.pid}"
        return run_of(held.lease, terms_to_tuple(envelope), counts, (now, now), worker)


_WHY_KILLED = {
    "fence": "its lease could not be renewed in time",
    "lost": "its lease was lost",
    "stop": "the worker was told to stop at once",
}


def processes_or_cores(processes: int | None) -> int:
    """How many children to run."""
    return os.cpu_count() or 1 if processes is None else processes
