"""The worker that runs everything in one process, one cycle after another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from django_jobs.backends.base import (
    LimitsRates,
    LooksAhead,
    Reconnects,
    stop_waiting,
    wait_for_work,
)
from django_jobs.execution.process_state import ProcessState
from django_jobs.execution.timeout import keep_alarm
from django_jobs.telemetry import events
from django_jobs.worker.build import build_relay
from django_jobs.worker.cycle import EMPTY, PASSED_OVER
from django_jobs.worker.duties import Duties, Ledger, Presence
from django_jobs.worker.relay import Relaying
from django_jobs.worker.stop import (
    NOTHING_DUE,
    ONE_CYCLE,
    EndConditions,
    Stop,
)
from django_jobs.worker.store import Restraint, Store
from django_jobs.worker.waiting_messages import warn_at_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.conf import JobsSettings
    from django_jobs.worker.cycle import Cycle, Report
    from django_jobs.worker.queues import QueueOrder
    from django_jobs.worker.stop import WorkerLimits


class Ticks(Protocol):
    """A scheduler that is driven by this loop. Only ``end`` may block."""

    def step(self) -> None: ...

    def seconds_left(self) -> float: ...

    def end(self, urgent: Callable[[], bool]) -> None: ...


class InProcessWorker:
    """Claims, runs and settles one job after the other."""

    def __init__(
        self,
        cycle: Cycle,
        queues: QueueOrder,
        limits: WorkerLimits,
        *,
        poll_interval: float,
        on_report: Callable[[Report], None] | None = None,
        cron: Ticks | None = None,
    ) -> None:
        self.stop = Stop()
        self.processed = 0
        self.why = ""
        self._cycle = cycle
        self._queues = queues
        self._limits = limits
        self._poll_interval = poll_interval
        self._on_report = on_report
        self._cron = cron
        asker, backend = cycle.asker, cycle.backend
        self._store = Store(
            asker.outage, self.stop.asked.is_set, lambda: wait_for_work(backend, None, 0.0)
        )
        self._duties = Duties(
            backend,
            shortest_lease(cycle.settings),
            asker.outage,
            Presence(backend, str(queues)),
            relay=Relaying(build_relay(backend, cycle.settings), poll_interval),
        )
        self._conditions = EndConditions(self.stop, limits)
        self._empty_looks = 0
        self._may_be_work, self._woken = True, False
        self._restraint = Restraint(poll_interval)
        asker.hurried = lambda: self.stop.urgent

    def run(self) -> int:
        """Work until asked to stop or a limit is reached; return the exit code."""
        self._conditions.begin()
        alias = self._cycle.backend.alias
        events.emit(events.WorkerStarted(backend=alias, queues=str(self._queues)))
        warn_at_start(self._cycle.backend, self._cycle.executor.gatekeeper, self._queues.watched)
        with self.stop.listening():
            if self.stop.ends_process:  # otherwise other code may use alarms as well
                keep_alarm()
            self._state = ProcessState()
            why = self._loop()
            if self._cron is not None:
                self._cron.end(lambda: self.stop.urgent)
            stop_waiting(self._cycle.backend)
            self._duties.end()
            Ledger(self._cycle.backend).end()
        if self.stop.urgent:
            why = "stopped at once by a second signal"
        self.why = why
        events.emit(events.WorkerStopped(backend=alias, processed=self.processed, why=why))
        return self.stop.exit_code

    def _loop(self) -> str:
        while not (why := self._reason_to_end()):
            if self._cron is not None:
                self._cron.step()
            report = self._store.call(self._turn)
            self._state.restore()
            if report is not None and (last := self._after(report)) is not None:
                return last
        return why

    def _turn(self) -> Report:
        if not (self._duties.step() or self._may_be_work):
            return EMPTY
        self._duties.do("look for queues", self._queues.refresh)
        return self._cycle.once(self._queues.next(), exhaustive=False)

    def _after(self, report: Report) -> str | None:
        """Handle a cycle's report; return the reason to end if it was the last."""
        if report:
            self._duties.relay.hurry()  # what was just processed may have enqueued
            self.processed += 1
            self._duties.tally.ended(report.queue, report.status, report.seconds)
            self._empty_looks, self._woken = 0, False
            self._restraint.end()
            if self._on_report is not None:
                self._on_report(report)
        if report == PASSED_OVER:  # there is more to look at, but first check for a stop
            return None
        if self._limits.once:
            return ONE_CYCLE
        return self._after_nothing() if report.status == "empty" else None

    def _after_nothing(self) -> str | None:
        self._empty_looks += 1
        if not self._limits.until_empty:
            if self._woken:  # perhaps by a job in a new queue, or one that another worker took
                self._queues.poll_again()
            self.stop.unless_asked(self._wait)
        elif self._store.call(self._still_comes) is not False:  # None if the store is away
            self._empty_looks = 0
            self.stop.unless_asked(self._wait)
        elif self._empty_looks > 1:
            return NOTHING_DUE
        else:  # the last job may have enqueued to a new queue
            self._queues.poll_again()
        return None

    def _still_comes(self) -> bool:
        """Whether there is work although none can be claimed just now."""
        backend, watched = self._cycle.backend, self._queues.watched
        if not self._duties.relay.has_nothing():
            return True
        if isinstance(backend, Reconnects) and backend.skips(watched):
            return True
        return isinstance(backend, LimitsRates) and backend.withholds(watched)

    def _reason_to_end(self) -> str:
        return self._conditions.reason(self.processed, draining=self._duties.draining)

    def _wait(self) -> None:
        backend, left = self._cycle.backend, self._conditions.seconds_left()
        pause = self._poll_interval
        if isinstance(backend, LooksAhead):
            pause = backend.look_every(pause)
        seconds = min(pause, left, self._duties.seconds_left())
        if self._cron is not None:
            seconds = min(seconds, self._cron.seconds_left())
        began = time.monotonic()
        woken = self._store.call(lambda: wait_for_work(backend, self._queues.watched, seconds))
        if woken:
            time.sleep(self._restraint.pause_after(time.monotonic() - began))
        self._may_be_work, self._woken = woken is not False, bool(woken)


def shortest_lease(settings: JobsSettings) -> float:
    """The shortest lease of any queue, in seconds."""
    return min([settings.lease_seconds, *map(settings.effective_lease, settings.queues)])
