"""Puts a pool together. The nursery comes first: before any thread or connection."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.telemetry import events
from django_jobs.worker.build import build_cycle, worker_name
from django_jobs.worker.cycle import events_of, report_of
from django_jobs.worker.pool.child import child_main, silent
from django_jobs.worker.pool.marks import shared_memory
from django_jobs.worker.pool.nursery import Nursery
from django_jobs.worker.pool.stores import StoreThread, wake_pipe
from django_jobs.worker.pool.supervisor import Supervisor
from django_jobs.worker.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings
    from django_jobs.worker.cycle import Cycle, Report
    from django_jobs.worker.loop import Limits
    from django_jobs.worker.pool.child import ParentRenews, Recorder
    from django_jobs.worker.pool.stores import Done
    from django_jobs.worker.queues import QueueOrder


def can_fork() -> bool:
    """Whether children can be forked here: not where a fork is unsafe, nor beside threads."""
    return sys.platform.startswith(("linux", "freebsd")) and threading.active_count() == 1


class PoolWorker:
    """A worker of several processes, with the face of the one that is a single process."""

    def __init__(
        self,
        backend: Backend,
        settings: JobsSettings,
        queues: QueueOrder,
        limits: Limits,
        *,
        processes: int,
        poll_interval: float,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        self.stop = Stop()
        self.processed = 0
        self._backend = backend
        self._settings = settings
        self._queues = queues
        self._limits = limits
        self._processes = processes
        self._poll_interval = poll_interval
        self._on_report = on_report

    def run(self) -> int:
        """Work until told to stop or a limit is reached; the exit code."""
        connections.close_all()
        memory = shared_memory(self._processes)
        nursery = Nursery(child_main(self._child_cycle, self._settings.kill_grace), memory)
        with self.stop.listening():
            supervisor = self._supervisor(nursery, memory)
            alias = self._backend.alias
            events.emit(events.WorkerStarted(backend=alias, queues=str(self._queues)))
            why = supervisor.run()
        self.processed = supervisor.processed
        events.emit(events.WorkerStopped(backend=alias, processed=self.processed, why=why))
        return self.stop.exit_code

    def _supervisor(self, nursery: Nursery, memory: int) -> Supervisor:
        cycle = build_cycle(self._backend, self._settings)
        wake = wake_pipe()
        store = StoreThread(
            self._backend,
            cycle.asker,
            self._queues,
            lease_seconds=self._settings.lease_seconds,
            poll_interval=self._poll_interval,
            wake=wake[1],
        )
        store.start()
        return Supervisor(
            nursery=nursery,
            memory=memory,
            store=store,
            stop=self.stop,
            limits=self._limits,
            processes=self._processes,
            wake=wake,
            on_done=self._done,
            believe=cycle.gatekeeper.believed,
            worker=worker_name().rpartition(":")[0],
        )

    def _child_cycle(
        self,
        recorder: Recorder,
        renewer: ParentRenews,
        starting: Callable[[float | None], None],
    ) -> Cycle:
        cycle = build_cycle(self._backend, self._settings)
        return replace(cycle, asker=recorder, renewer=renewer, starting=starting, tell=silent)

    def _done(self, done: Done) -> None:
        report = report_of(done.run, done.verdict)
        for event in events_of(done.run, done.verdict, report, done.outcome):
            events.emit(event)
        if self._on_report is not None:
            self._on_report(report)
