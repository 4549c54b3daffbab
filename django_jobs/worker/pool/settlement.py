"""Passes the outcomes of deliveries to the store threads, and counts them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_jobs.backends.base import Settled
from django_jobs.clock import SystemClock, to_microseconds
from django_jobs.outcome import Interrupted
from django_jobs.worker.pool.thread_messages import Done, Finished, settled_by_child
from django_jobs.worker.settle import Run, SettleTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.outcome import Outcome
    from django_jobs.wire.envelope import Envelope
    from django_jobs.worker.pool.children import Child, Held, Lane
    from django_jobs.worker.pool.messages import RunReport
    from django_jobs.worker.pool.store_threads import StoreThreads

MOST_UNSETTLED = 4000
UNSETTLED_BYTES = 8 << 20
_clock = SystemClock()


class Settlement:
    """Has deliveries settled, and reports them when the store has answered."""

    def __init__(
        self,
        store: StoreThreads,
        report: Callable[[Sequence[Done]], None],
        envelope_of: Callable[[Lease], Envelope | None],
        worker: str,
        *,
        can_put_off: bool = True,
    ) -> None:
        self.can_put_off = can_put_off
        self.processed = 0
        self.open = self.open_bytes = 0
        self.back_at = 0.0  # when all jobs put off here are due again
        self._finished: list[Finished] = []
        self._store = store
        self._report = report
        self._envelope_of = envelope_of
        self._worker = worker

    @property
    def has_plenty(self) -> bool:
        """Whether so much waits to be settled that no more jobs should be run."""
        return self.open > MOST_UNSETTLED or self.open_bytes > UNSETTLED_BYTES

    def give_back(self, held: Held, why: str) -> None:
        """Return a job that was not run to its place in the queue, uncharged."""
        self._return(held, Interrupted(why, begun=False))

    def put_off(self, held: Held, delay: float, why: str) -> None:
        """Return a job that cannot be run now, to be claimed again after a delay, uncharged."""
        suspect = held.lease.suspect
        self._return(held, Interrupted(why, suspect=suspect, delay=delay, begun=False))

    def cut_short(self, held: Held, lane: Lane, outcome: Outcome) -> None:
        """Settle a job that its child began and did not report."""
        envelope, now = self._envelope_of(held.lease), _clock.now()
        began_at = lane.marks.began_at
        lasted = to_microseconds(time.monotonic() - began_at) if began_at else 0
        header = held.lease.message.header
        if envelope is not None:
            header = header.clamped(envelope.terms)
        run = Run(
            held.lease,
            SettleTerms.of(envelope),
            header.attempts,
            header.crashes,
            now - lasted,
            now,
            f"{self._worker}:{lane.child.pid}",
        )
        self._settle(run, outcome)

    def ran(self, held: Held, child: Child, report: RunReport, times: tuple[int, int]) -> None:
        """Settle a job that its child reported."""
        outcome, terms, counts = report
        worker = f"{self._worker}:{child.pid}"
        self._settle(Run(held.lease, terms, *counts, *times, worker), outcome)

    def settled_by(self, child: Child, held: Held, status: str, seconds: float) -> None:
        """Count a job that its child settled inside the handler's transaction."""
        self._store.settled_elsewhere(held.lease, status, seconds)
        self.processed += 1
        self._report([settled_by_child(held.lease, status, seconds, f"{self._worker}:{child.pid}")])

    def done(self, settled: Sequence[Done]) -> None:
        """Count and report deliveries that the store has settled."""
        self.open -= len(settled)
        self.open_bytes -= sum([len(done.run.lease.message.body) for done in settled])
        for _, outcome, verdict in settled:
            if isinstance(outcome, Interrupted) and verdict.answer is Settled.SETTLED:
                if verdict.delay:
                    self.back_at = max(self.back_at, time.monotonic() + verdict.delay)
            else:
                self.processed += 1
        self._report(settled)

    def flush(self) -> None:
        """Pass everything that ended since the last call to the store threads."""
        if self._finished:
            finished, self._finished = self._finished, []
            self._store.settle(finished)

    def _return(self, held: Held, outcome: Interrupted) -> None:
        header, now = held.lease.message.header, _clock.now()
        run = Run(held.lease, None, header.attempts, header.crashes, now, now, self._worker)
        self._settle(run, outcome)

    def _settle(self, run: Run, outcome: Outcome) -> None:
        self.open += 1
        self.open_bytes += len(run.lease.message.body)
        self._finished.append(Finished(run, outcome))
