"""The cycle of a worker that talks to the store itself: fetch, execute, settle, report.

It renews the lease of a running handler from another thread.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from django.db import connections

from django_jobs.backends.base import Cancels, Settled, works_from_threads
from django_jobs.clock import SECOND
from django_jobs.telemetry import events
from django_jobs.worker.admission import Admitted
from django_jobs.worker.events import emit_claimed, events_of
from django_jobs.worker.executor import TOO_LATE
from django_jobs.worker.store import spares_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.worker.executor import Execution, Executor
    from django_jobs.worker.settle import Run, Verdict
    from django_jobs.worker.store import Asker


class Report(NamedTuple):
    """What one call of ``process_once()`` did."""

    status: str
    job_id: str = ""
    queue: str = ""
    handler: str = ""
    attempt: int = 0
    delay: float = 0.0
    reason: str = ""
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return self.status not in _NO_JOB


MOST_LATE_CLAIMS = 8  # each allows twice as much time as the one before
EMPTY = Report(status="empty")
PASSED_OVER = Report(status="circuit-open")
_NO_JOB = {"empty", "error", "paused", "rate-limited", "circuit-open"}


RENEWALS_PER_LEASE = 3
ASK_SECONDS = 1.0


class Renewer:
    """Renews leases of one backend while a block runs, and notes requests to stop their jobs.

    In another thread. A handler that never releases the interpreter stops this thread too; with
    child processes the parent renews instead.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._asked: set[str] = set()

    def is_asked(self, lease: Lease) -> bool:
        """Whether the job of a lease was asked to stop."""
        return lease.token in self._asked

    @contextmanager
    def holding(self, lease: Lease, lease_seconds: float) -> Iterator[None]:
        """Renew a lease until the block ends."""
        if not (self._backend.capabilities.renew and works_from_threads(self._backend)):
            yield
            return
        done = threading.Event()
        thread = threading.Thread(
            target=self._renew, args=(lease, lease_seconds, done), name="django_jobs-renewal"
        )
        thread.daemon = True
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._asked.discard(lease.token)

    def _renew(self, lease: Lease, lease_seconds: float, done: threading.Event) -> None:
        pause = lease_seconds / RENEWALS_PER_LEASE
        renew_at = time.monotonic() + pause
        try:
            while not done.wait(min(pause, ASK_SECONDS)):
                try:
                    if time.monotonic() >= renew_at:
                        self._backend.renew([lease], lease_seconds)
                        renew_at = time.monotonic() + pause
                    if isinstance(self._backend, Cancels) and self._backend.asked_to_stop([lease]):
                        self._asked.add(lease.token)
                except Exception:  # noqa: BLE001 - tried again next time; the settle notices a loss
                    connections.close_all()
        finally:
            connections.close_all()


@dataclass(frozen=True, slots=True)
class Cycle:
    """Fetch, execute, settle; for one backend."""

    executor: Executor
    asker: Asker
    renewer: Renewer

    @property
    def backend(self) -> Backend:
        return self.executor.backend

    @property
    def settings(self) -> JobsSettings:
        return self.executor.settings

    def once(self, queues: Sequence[str], *, exhaustive: bool = True) -> Report:
        """Process one message of the first queue that has any.

        If many messages have to be skipped first, such as those of a broken handler, a call that is
        not ``exhaustive`` skips only some, and the caller comes again. A claim that was answered
        too late for its job to start is repeated, as each claim then allows more time: a process
        that lives for one message would otherwise never run it.
        """
        report = self._once(queues, exhaustive=exhaustive)
        for _ in range(MOST_LATE_CLAIMS):
            if (report.status, report.reason) != ("requeued", TOO_LATE.reason):
                break
            report = self._once(queues, exhaustive=exhaustive)
        return report

    def _once(self, queues: Sequence[str], *, exhaustive: bool) -> Report:
        failed: Exception | None = None
        for queue in queues:
            lease_seconds = self.settings.effective_lease(queue)
            try:
                asked_at, leases = self._fetched(queue, lease_seconds, exhaustive=exhaustive)
            except Exception as error:
                if not spares_others(error):
                    raise
                failed = failed or error
                continue
            if leases is None:
                return PASSED_OVER
            for lease in leases:
                if time.monotonic() - asked_at > lease_seconds / 2:
                    self.backend.nack_all([lease])  # too little of the lease is left to run a job
                    return EMPTY
                emit_claimed([lease])
                return self.deliver(lease, lease_seconds)
        if failed is not None:  # or the queues would seem empty
            raise failed
        return EMPTY

    def _fetched(
        self, queue: str, lease_seconds: float, *, exhaustive: bool
    ) -> tuple[float, list[Lease] | None]:
        """When the fetch began, and its leases; None if there are more messages to skip."""
        fetch = partial(self.backend.fetch, [queue], 1, lease_seconds)
        asked_at, leases = time.monotonic(), fetch()
        # There are no leases to renew meanwhile.
        while not leases and self.backend.fetch_ended_early:
            if not exhaustive:
                return asked_at, None
            asked_at, leases = time.monotonic(), fetch()
        return asked_at, leases

    def deliver(self, lease: Lease, lease_seconds: float) -> Report:
        """Run and settle one leased message, and emit its events."""
        execution, verdict = copy_context().run(self._settled, lease, lease_seconds)
        run, outcome, *_ = execution
        report = report_of(run, verdict)
        for event in events_of(run, verdict, report, outcome):
            events.emit(event)
        return report

    def _settled(self, lease: Lease, lease_seconds: float) -> tuple[Execution, Verdict]:
        prepared = self.executor.prepare(lease, lease_seconds)
        runs = isinstance(prepared.decision, Admitted)
        with self.renewer.holding(lease, lease_seconds) if runs else nullcontext():
            execution = self.executor.execute(prepared)
            return execution, self._settle(execution, lease_seconds)

    def _settle(self, execution: Execution, lease_seconds: float) -> Verdict:
        run, outcome, verdict, unanswered = execution
        if verdict is not None:
            return verdict
        if unanswered is not None and self.asker.is_gone(run, lease_seconds):
            return unanswered
        return self.asker.settle(run, outcome, lease_seconds)


def report_of(run: Run, verdict: Verdict) -> Report:
    """The report of a delivery."""
    status = verdict.status
    if verdict.answer is not Settled.SETTLED:
        status = "lease-lost" if verdict.answer is Settled.LOST else "error"
    return Report(
        status=status,
        job_id=run.lease.id,
        queue=run.lease.queue,
        handler=run.handler,
        attempt=run.attempts + 1,
        delay=verdict.delay,
        reason=verdict.reason,
        seconds=(run.finished_at - run.started_at) / SECOND,
    )
