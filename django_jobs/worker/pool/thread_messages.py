"""Messages between the store threads and the supervisor, and the pipe that wakes it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from django_jobs.backends.base import Settled
from django_jobs.clock import SystemClock, to_microseconds
from django_jobs.outcome import Succeeded
from django_jobs.worker.pool.pace import Pace
from django_jobs.worker.settle import Run, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.outcome import Outcome
    from django_jobs.worker.duties import Tally
    from django_jobs.worker.pool.keep_thread import Holdings
    from django_jobs.worker.store import Asker

_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Claimed leases. They hold for at least ``lease_seconds`` from ``asked_at`` on our clock."""

    leases: list[Lease]
    lease_seconds: float
    asked_at: float


class Idle(NamedTuple):
    """How many lanes were idle when the supervisor had received this many leases.

    ``most``: how many more leases the worker may have. ``pace``: how long the jobs of each
    rate-limited queue take.
    """

    lanes: int
    received: int
    most: int
    pace: Pace

    def room(self, queue: str) -> int:
        """How many jobs of a queue could begin immediately."""
        return min(self.lanes * self.pace.prompt(queue), self.most)


NOT_IDLE = Idle(0, 0, 0, Pace())


class Finished(NamedTuple):
    """A delivery to settle. ``again``: an earlier try was not answered."""

    run: Run
    outcome: Outcome
    again: bool = False


class Done(NamedTuple):
    """A settled delivery."""

    run: Run
    outcome: Outcome
    verdict: Verdict

    @property
    def is_plain(self) -> bool:
        """Whether it is an ordinary success, which only has to be counted."""
        return self.verdict.status == "acked" and self.verdict.answer is Settled.SETTLED


@dataclass(frozen=True, slots=True)
class AllDone:
    """The deliveries that one step settled."""

    settled: list[Done]


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answers of a renewal, by id and token of the lease."""

    answers: dict[tuple[str, str], Settled]
    asked_at: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """These jobs were asked to stop. Those that still run at ``kill_at`` are killed."""

    ids: frozenset[str]
    kill_at: float


StoreMessage = Fetched | AllDone | Renewed | StopAsked


def settled_by_child(lease: Lease, status: str, seconds: float, worker: str) -> Done:
    """A delivery that the child settled itself, inside the handler's transaction."""
    header, now = lease.message.header, _clock.now()
    times = (now - to_microseconds(seconds), now)
    run = Run(lease, None, header.attempts, header.crashes, *times, worker)
    answer = Settled.LOST if status == "lease-lost" else Settled.SETTLED
    return Done(run, Succeeded(), Verdict(status, answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the store threads of a worker share; ``lease`` is its shortest lease."""

    backend: Backend
    settings: JobsSettings
    asker: Asker
    holdings: Holdings
    tally: Tally
    lease: float
    report: Callable[[StoreMessage], None]
    wake: Callable[[], None]
    stopped: Callable[[], bool]


class WakePipe:
    """Wakes the supervisor out of ``select()``; never blocks either side."""

    def __init__(self) -> None:
        self._reads, self.writes = os.pipe()
        for end in (self._reads, self.writes):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        return self._reads

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: the supervisor wakes up anyway
            os.write(self.writes, b"!")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reads, 4096):
                pass

    def close(self) -> None:
        os.close(self._reads)
        os.close(self.writes)
