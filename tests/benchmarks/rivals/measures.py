"""One measurement of one contestant: a drain, or a worker that idles and is woken."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.contestants import site
from tests.benchmarks.rivals.marks import Marks
from tests.benchmarks.rivals.processes import ContestantFailed, Producer, working
from tests.benchmarks.rivals.site import MACHINE
from tests.benchmarks.rivals.stores import Price, store_for
from tests.benchmarks.rivals.surroundings import Surroundings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager, ExitStack
    from pathlib import Path

    from tests.benchmarks.rivals.processes import Workers
    from tests.benchmarks.rivals.site import Way

WARM_UP = 10  # the first tenth of a drain is not timed: processes start, plans are made
SINGLY = 500
FIRST_WITHIN, SETTLED_WITHIN, PATIENCE = 30.0, 30.0, 10.0
CALM = 1.0
SEED = 1  # the same moments for everybody


@dataclass(frozen=True)
class Drain:
    """What one drain came to. Processor times are microseconds per job."""

    jobs: int
    per_second: float  # runs of the handler
    settled_per_second: float  # the same, until nothing was left in the tables
    worker_cpu: float
    server_cpu: float
    settled_ms: float  # from the last run of a handler to nothing left in the tables
    enqueued: dict[str, float]  # per second: "one" by one, "many" in bulk

    @property
    def cpu(self) -> float:
        return self.worker_cpu + self.server_cpu


@dataclass(frozen=True)
class Calm:
    """What a worker at its defaults does when there is little to do."""

    idle: float  # share of one core
    delays_ms: list[float] = field(default_factory=list)


class Contestant:
    """A contestant with its database and its producer, for as long as the run lasts."""

    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        self.name, self.site = name, site(name)
        self.folder = folder
        self.store = store_for(self.site.vendor, folder, name)
        log = folder / f"{self.slug}.producer.log"
        self.producer = Producer(self._surroundings(MACHINE), log)
        stack.callback(self.producer.stop)
        self.producer.ask("prepare")

    @property
    def slug(self) -> str:
        return self.name.replace(":", "-")

    def _surroundings(self, way: str, marks: str = "") -> Surroundings:
        return Surroundings(self.name, way, self.store.name, marks)

    def drain(self, way: Way, seconds: float, most: int) -> Drain:
        """Enqueue, start the workers, wait for the end, and see that all was done once."""
        jobs = min(most, max(50, int(way.pace * seconds)))
        self.store.empty()
        enqueued = self.producer.ask("fill", within=120, jobs=jobs, singly=min(SINGLY, jobs // 2))
        self.store.rest()
        marks, others = Marks(self.folder / "marks"), self.store.backends()
        with self.workers(way, marks) as workers:
            workers.until(lambda: marks.count() > 0, "no job ran", FIRST_WITHIN)
            price = Price(self.store, others, reaped=way.reconnects)
            spent, before = workers.seconds(), marks.count()
            within = PATIENCE + 10 * seconds
            workers.until(lambda: marks.count() >= jobs, f"not all of {jobs} jobs ran", within)
            self._settled(workers)
            seen = time.monotonic_ns()
            spent, server = workers.seconds() - spent, price.seconds()
        self._done_once(marks, jobs)
        moments = marks.in_order()
        timed, counted = moments[jobs // WARM_UP :], max(1, jobs - before)
        return Drain(
            jobs=jobs,
            per_second=(len(timed) - 1) / (timed[-1] - timed[0]) * 1e9,
            settled_per_second=(len(timed) - 1) / (seen - timed[0]) * 1e9,
            worker_cpu=spent / counted * 1e6,
            server_cpu=server / counted * 1e6,
            settled_ms=(seen - moments[-1]) / 1e6,
            enqueued=enqueued,
        )

    def enqueue(self, jobs: int) -> float:
        """Enqueue one by one into empty tables; how many a second."""
        self.store.empty()
        rate: float = self.producer.ask("fill", within=120, jobs=jobs, singly=jobs)["one"]
        return rate

    def look_up(self, reads: int) -> dict[str, float]:
        """Read the "results" that the last drain left, and bare "rows"; how many a second."""
        rates: dict[str, float] = self.producer.ask("look_up", within=120, reads=reads)
        return rates

    def calm(self, way: Way, seconds: float, samples: int) -> Calm:
        """Let a worker idle, then wake it again and again; one job at a time."""
        self.store.empty()
        marks, others = Marks(self.folder / "marks"), self.store.backends()
        with self.workers(way, marks) as workers:
            self.producer.ask("trickle", first=0, jobs=1, seed=0)
            workers.until(lambda: marks.count() > 0, "no job ran", FIRST_WITHIN)
            time.sleep(CALM)
            price, spent = Price(self.store, others, reaped=way.reconnects), workers.seconds()
            began = time.monotonic()
            time.sleep(seconds)
            spent, server = workers.seconds() - spent, price.seconds()
            idle = (spent + server) / (time.monotonic() - began)
            returned = self.producer.ask(
                "trickle", within=60 + samples, first=1, jobs=samples, seed=SEED
            )
            workers.until(
                lambda: marks.count() > samples, f"not all of {samples} jobs ran", PATIENCE
            )
            self._settled(workers)
        self._done_once(marks, samples + 1)
        ran = marks.moments()
        delays = [max(0.0, (ran[n] - moment) / 1e6) for n, moment in enumerate(returned, 1)]
        return Calm(idle, delays)

    def workers(self, way: Way, marks: Marks) -> AbstractContextManager[Workers]:
        """Started anew, gone afterwards."""
        log = self.folder / f"{self.slug}.{way.name.replace(' ', '-')}.log"
        return working(self._surroundings(way.name, str(marks.path)), way.workers, log)

    def _settled(self, workers: Workers) -> None:
        with self.store.asking(self.site.left) as left:
            workers.until(lambda: left() == 0, "some jobs were not finished", SETTLED_WITHIN)

    def _done_once(self, marks: Marks, jobs: int) -> None:
        """Looked at when the workers are gone, so that a late second run would be seen."""
        if complaint := marks.complaint(jobs):
            raise ContestantFailed(complaint)
        if left := self.store.ask(self.site.left):
            raise ContestantFailed(f"{left} jobs are left in its tables")
