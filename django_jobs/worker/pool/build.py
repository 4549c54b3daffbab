"""Builds a pool. The fork server comes first, before any thread or connection."""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.backends.base import works_from_threads
from django_jobs.handlers.shell import stray_processes
from django_jobs.telemetry import events, logs, metrics
from django_jobs.worker.build import (
    build_asker,
    build_executor,
    build_gatekeeper,
    build_relay,
    worker_name,
)
from django_jobs.worker.cycle import report_of
from django_jobs.worker.duties import Ledger
from django_jobs.worker.events import events_of
from django_jobs.worker.in_process import shortest_lease
from django_jobs.worker.pool import spawnserver
from django_jobs.worker.pool.child import child_main
from django_jobs.worker.pool.forkserver import start_fork_server
from django_jobs.worker.pool.lifecycle import ChildLimits
from django_jobs.worker.pool.log_thread import LogThread
from django_jobs.worker.pool.settlement import Settlement
from django_jobs.worker.pool.shared_memory import Places, shared_memory
from django_jobs.worker.pool.store_threads import HANG_SHARE, StoreThreads
from django_jobs.worker.pool.supervisor import Supervisor
from django_jobs.worker.pool.thread_messages import WakePipe
from django_jobs.worker.pool.wait_thread import limit_connecting
from django_jobs.worker.settle import Settler
from django_jobs.worker.signals import sending_through
from django_jobs.worker.stop import Stop
from django_jobs.worker.waiting_messages import warn_at_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings
    from django_jobs.worker.cycle import Report
    from django_jobs.worker.executor import Executor
    from django_jobs.worker.pool.forkserver import ForkServer
    from django_jobs.worker.pool.thread_messages import Done
    from django_jobs.worker.queues import QueueOrder
    from django_jobs.worker.stop import WorkerLimits

# More objects than the leases that a parent holds; these are freed without the collector.
YOUNGEST = 50_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Run the garbage collector rarely inside the block, and not on objects from before it.

    A parent makes thousands of small objects a second, and each batch of leases would start the
    collector again. Leases are in no cycles; only children that have ended are, and they are few.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(max(YOUNGEST, thresholds[0]) if thresholds[0] else 0, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


BROKEN = 1
END_SECONDS = 2.0


def why_no_children() -> str:
    """Why a worker cannot have children here; empty if it can."""
    return spawnserver.why_not() if spawnserver.is_needed() else ""


def processes_for(asked: int | None, backend: Backend) -> int:
    """How many children to run: as asked, or one for each core if children are possible."""
    if not works_from_threads(backend):  # an in-memory database, which other connections do not see
        return 0
    if asked is not None:
        return asked
    # On macOS children have to be asked for: they are untested there.
    return 0 if sys.platform == "darwin" or why_no_children() else cores()


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class PoolWorker:
    """A worker of several processes, with the interface of the single-process worker."""

    def __init__(
        self,
        backend: Backend,
        settings: JobsSettings,
        queues: QueueOrder,
        limits: WorkerLimits,
        *,
        places: Places,
        poll_interval: float,
        child_limits: ChildLimits | None = None,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        self.stop = Stop()
        self.processed = 0
        self.why = ""
        self._backend = backend
        self._settings = settings
        self._relay = build_relay(backend, settings)
        self._queues = queues
        self._limits = limits
        self._places = places
        self._poll_interval = poll_interval
        self._child_limits = child_limits or ChildLimits()
        self._on_report = on_report

    def run(self) -> int:
        """Work until a stop signal or a limit; returns the exit code."""
        connections.close_all()
        if self._settings.allowed_shell_commands:
            stray_processes.forbid_dumps()
        memory = shared_memory(self._places.slots)
        server = self._fork_server(memory)
        database = self._backend.home
        for alias in {database, self._relay.home if self._relay else None}:
            limit_connecting(alias, shortest_lease(self._settings) / HANG_SHARE)
        log_thread = LogThread()
        log_thread.start()
        try:
            with rare_collections(), self.stop.listening(), logs.through(log_thread.submit):
                code = self._work(server, log_thread)
        finally:
            log_is_written = log_thread.end(END_SECONDS)
        if not log_is_written:
            os._exit(code)  # an orderly exit would wait for the log's reader
        return code

    def _work(self, server: ForkServer, log_thread: LogThread) -> int:
        alias = self._backend.alias
        supervisor, settlement = self._supervisor(server, log_thread)
        events.emit(events.WorkerStarted(backend=alias, queues=str(self._queues)))
        look = threading.Thread(target=self._look_at_what_waits, daemon=True)
        look.start()
        with sending_through(supervisor.signal_process.send):
            why = supervisor.run()
        look.join(END_SECONDS)
        self.processed = settlement.processed
        Ledger(self._backend).end()
        if supervisor.broken:
            events.emit(events.WorkerBroken(backend=alias, why=supervisor.broken))
        if self.stop.urgent:
            why = "stopped at once by a second signal"
        self.why = why
        events.emit(events.WorkerStopped(backend=alias, processed=self.processed, why=why))
        return self.stop.exit_code or (BROKEN if supervisor.broken else 0)

    def _look_at_what_waits(self) -> None:
        """Warn of jobs that no worker can run, in a thread, so that the start need not wait."""
        try:
            gatekeeper = build_gatekeeper(self._backend, self._settings)
            warn_at_start(self._backend, gatekeeper, self._queues.watched)
        finally:
            connections.close_all()

    def _fork_server(self, memory: int) -> ForkServer:
        if spawnserver.is_needed():
            return spawnserver.start_spawn_server(self._backend.alias, self._places, memory)
        main = child_main(self._child_executor, self._settings.kill_grace, self._places)
        return start_fork_server(main, memory)

    def _supervisor(
        self, server: ForkServer, log_thread: LogThread
    ) -> tuple[Supervisor, Settlement]:
        wake = WakePipe()
        store = StoreThreads(
            self._backend,
            self._settings,
            build_asker(Settler(self._backend, self._settings)),
            self._queues,
            places=self._places,
            poll_interval=self._poll_interval,
            wake=wake,
            relay=self._relay,
        )
        worker = worker_name().rpartition(":")[0]
        settlement = Settlement(
            store,
            partial(self._done, log_thread),
            build_gatekeeper(self._backend, self._settings).believed,
            worker,
            can_put_off=self._backend.capabilities.delay,
        )
        supervisor = Supervisor(
            server=server,
            places=self._places,
            child_limits=self._child_limits,
            store=store,
            settlement=settlement,
            stop=self.stop,
            limits=self._limits,
            wake=wake,
        )
        store.start()
        return supervisor, settlement

    def _child_executor(self) -> Executor:
        return build_executor(self._backend, self._settings)

    def _done(self, log_thread: LogThread, settled: Sequence[Done]) -> None:
        reported = settled
        if self._on_report is None and not events.is_wanted(events.JobSucceeded):
            # Most jobs of a busy worker are plain successes.
            metrics.succeeded([done.run.lasted for done in settled if done.is_plain])
            reported = [done for done in settled if not done.is_plain]
        for done in reported:
            report = report_of(done.run, done.verdict)
            for event in events_of(done.run, done.verdict, report, done.outcome):
                events.emit(event)
            if self._on_report is not None:
                log_thread.submit(partial(self._on_report, report))
