"""Where deliveries end in the parent: outcomes go to the store, and are counted on the way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_jobs.backends.base import Settled
from django_jobs.clock import SystemClock, to_microseconds
from django_jobs.execution.outcome import Interrupted
from django_jobs.worker.pool.thread_messages import Done, Finished, by_child
from django_jobs.worker.settle import Run, SettleTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.execution.outcome import Outcome
    from django_jobs.wire.envelope import Envelope
    from django_jobs.worker.pool.children import Child, Held, Lane
    from django_jobs.worker.pool.messages import Said
    from django_jobs.worker.pool.store_threads import StoreThreads

MOST_UNSETTLED = 4000
UNSETTLED_BYTES = 8 << 20
_clock = SystemClock()


class Desk:
    """Settles, and says what became of it when the store has answered."""

    def __init__(
        self,
        store: StoreThreads,
        tell: Callable[[Sequence[Done]], None],
        believe: Callable[[Lease], Envelope | None],
        worker: str,
        *,
        can_put_off: bool = True,
    ) -> None:
        self.can_put_off = can_put_off
        self.processed = 0
        self.open = self.open_bytes = 0
        self.back_at = 0.0  # by then all is due again that was put off here
        self._finished: list[Finished] = []
        self._store = store
        self._tell = tell
        self._believe = believe
        self._worker = worker

    @property
    def has_plenty(self) -> bool:
        """Whether so much waits to be settled that no more should be run meanwhile."""
        return self.open > MOST_UNSETTLED or self.open_bytes > UNSETTLED_BYTES

    def give_back(self, held: Held, why: str) -> None:
        """It was not run: to its old place, and nothing charged."""
        self._return(held, Interrupted(why, begun=False))

    def put_off(self, held: Held, delay: float, why: str) -> None:
        """It cannot be run now: to be claimed again after so many seconds, and nothing charged."""
        suspect = held.lease.suspect
        self._return(held, Interrupted(why, suspect=suspect, delay=delay, begun=False))

    def cut_short(self, held: Held, lane: Lane, outcome: Outcome) -> None:
        """Its child told nothing of it any more."""
        envelope, now = self._believe(held.lease), _clock.now()
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

    def ran(self, held: Held, child: Child, said: Said, times: tuple[int, int]) -> None:
        """A child says how it ended; the store has not heard of it yet."""
        outcome, terms, counts = said
        worker = f"{self._worker}:{child.pid}"
        self._settle(Run(held.lease, terms, *counts, *times, worker), outcome)

    def settled_by(self, child: Child, held: Held, status: str, seconds: float) -> None:
        """A child settled it inside the handler's transaction."""
        self._store.settled_elsewhere(held.lease, status, seconds)
        self.processed += 1
        self._tell([by_child(held.lease, status, seconds, f"{self._worker}:{child.pid}")])

    def done(self, settled: Sequence[Done]) -> None:
        """The store has answered."""
        self.open -= len(settled)
        self.open_bytes -= sum([len(done.run.lease.message.body) for done in settled])
        for _, outcome, verdict in settled:
            if isinstance(outcome, Interrupted) and verdict.answer is Settled.SETTLED:
                if verdict.delay:
                    self.back_at = max(self.back_at, time.monotonic() + verdict.delay)
            else:
                self.processed += 1
        self._tell(settled)

    def flush(self) -> None:
        """Let the store hear of everything that ended since the last time."""
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
