"""A child: takes leases from the parent, runs one at a time, tells how each ended.

It never settles, save for ``atomic=True``, where the ack is part of the handler's own
transaction.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_jobs.backends.base import Settled
from django_jobs.clock import SystemClock
from django_jobs.worker.pool.channel import Channel
from django_jobs.worker.pool.marks import Marks
from django_jobs.worker.pool.messages import lease_from_tuple, outcome_to_tuple, terms_to_tuple
from django_jobs.worker.settle import Verdict

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from django_jobs.backends.base import Lease
    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.cycle import Cycle
    from django_jobs.worker.settle import Run


_clock = SystemClock()


class Recorder:
    """Stands where settling stands in one process, and keeps what it is told."""

    def __init__(self) -> None:
        self.told: tuple[Run, Outcome] | None = None

    def settle(self, run: Run, outcome: Outcome, _seconds: float) -> Verdict:
        self.told = (run, outcome)
        return Verdict("recorded", Settled.SETTLED)

    def taken(self) -> tuple[Run, Outcome] | None:
        """What it was told since it was last asked."""
        told, self.told = self.told, None
        return told

    def is_gone(self, _run: Run, _seconds: float) -> bool:
        """An atomic commit that was not answered: the parent looks."""
        return False


class ParentRenews:
    """In a child nothing has to be done for a lease to live."""

    @contextmanager
    def holding(self, _lease: Lease, _seconds: float) -> Iterator[None]:
        yield


class Child:
    """The loop of one child process."""

    def __init__(self, cycle: Cycle, recorder: Recorder, channel: Channel, marks: Marks) -> None:
        self._cycle = cycle
        self._recorder = recorder
        self._channel = channel
        self._marks = marks

    def run(self) -> None:
        """Serve until the parent closes the conversation."""
        while True:
            try:
                frame = self._channel.receive()
            except (EOFError, ConnectionError):
                return
            for number, lease_seconds, told in frame:
                self._one(number, lease_seconds, lease_from_tuple(told))

    def _one(self, number: int, lease_seconds: float, lease: Lease) -> None:
        if not self._marks.begin(number, _clock.now()):
            self._channel.send((number, "skipped"))
            return
        report = self._cycle.deliver(lease, lease_seconds)
        self._marks.done(number)
        recorded = self._recorder.taken()
        if recorded is None:
            self._channel.send((number, "settled", report.status, report.seconds))
            return
        run, outcome = recorded
        self._channel.send(
            (
                number,
                "ran",
                outcome_to_tuple(outcome),
                terms_to_tuple(run.envelope),
                (run.attempts, run.crashes),
                (run.started_at, run.finished_at),
            )
        )


def child_main(
    build: Callable[[Recorder, ParentRenews, Callable[[float | None], None]], Cycle],
    kill_grace: float,
) -> Callable[[socket.socket, int, int], None]:
    """What the nursery runs in a new child."""

    def main(sock: socket.socket, slot: int, memory: int) -> None:
        random.seed()
        connections.close_all()
        marks = Marks(memory, slot)
        os.close(memory)
        recorder = Recorder()

        def starting(timeout: float | None) -> None:
            end = 0.0 if timeout is None else time.monotonic() + timeout + kill_grace
            marks.run_until(end)

        cycle = build(recorder, ParentRenews(), starting)
        os.environ["DJANGO_JOBS_CHILD"] = str(slot)
        Child(cycle, recorder, Channel(sock), marks).run()
        connections.close_all()

    return main


def silent(_event: Any) -> None:
    """What happened to a job is told by the parent, once it is settled."""
