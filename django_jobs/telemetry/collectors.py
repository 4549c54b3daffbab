"""Who takes figures down. ``METRICS`` names the classes; each is made once per process."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from django_jobs.telemetry.metrics import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_jobs.telemetry.metrics import Gauge, Gauges

MOST_KEYS = 5000
MICROSECONDS = 1_000_000
Key = tuple[str, str]


class Collector(Protocol):
    """What a class of ``METRICS`` has to have. Calls come from several threads.

    They come from the worker's own process, between its jobs: whoever is slow here slows
    all of them down. What is raised is logged, and changes nothing.
    """

    def increment(self, name: str, queue: str, by: int = 1) -> None:
        """Count something."""

    def observe(self, name: str, queue: str, seconds: float) -> None:
        """Take down how long something took."""


class Watcher(Collector, Protocol):
    """A collector that tells gauges as well. It is called once, before anything is counted."""

    def watch(self, gauges: Gauges) -> None:
        """Keep what gauges are read from, for when they are asked for."""


@dataclass(slots=True)
class Spread:
    """How often something took how long. ``counts`` has a place for each of ``BUCKETS``, and
    one for what is longer than all of them; they do not include each other.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    microseconds: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class Snapshot:
    """Figures by name and queue."""

    counters: dict[Key, int] = field(default_factory=dict)
    histograms: dict[Key, Spread] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counters or self.histograms)


class InMemory:
    """Keeps figures in this process, for as long as it lives; the default.

    There are at most 5000 pairs of name and queue; further ones are counted together,
    under the queue ``…``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept = Snapshot()
        self._gauges: Gauges | None = None

    def increment(self, name: str, queue: str, by: int = 1) -> None:
        with self._lock:
            self._add(name, queue, by)

    def observe(self, name: str, queue: str, seconds: float) -> None:
        self.observe_all(name, queue, (seconds,))

    def watch(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def gauges(self) -> list[Gauge]:
        """How queues and workers stand, of the whole installation; the stores are asked when
        this is called, at most every few seconds. Raises what they raise.
        """
        return [] if self._gauges is None else self._gauges.read()

    def observe_all(self, name: str, queue: str, times: Iterable[float]) -> None:
        """Many observations, for a fraction of their price."""
        with self._lock:
            spread = self._spread(name, queue)
            counts = spread.counts
            for seconds in times:
                counts[bisect_left(BUCKETS, seconds)] += 1
                spread.microseconds += int(seconds * MICROSECONDS)

    def snapshot(self) -> Snapshot:
        """A copy of what was collected."""
        with self._lock:
            return self._copied()

    def take(self) -> Snapshot:
        """What was collected, and begin anew."""
        with self._lock:
            taken, self._kept = self._kept, Snapshot()
            return taken

    def give_back(self, taken: Snapshot) -> None:
        """Add what was taken and could not be used."""
        with self._lock:
            for (name, queue), count in taken.counters.items():
                self._add(name, queue, count)
            for (name, queue), taken_spread in taken.histograms.items():
                spread = self._spread(name, queue)
                spread.counts = [
                    a + b for a, b in zip(spread.counts, taken_spread.counts, strict=True)
                ]
                spread.microseconds += taken_spread.microseconds

    def _add(self, name: str, queue: str, by: int) -> None:
        counters = self._kept.counters
        key = name, queue
        if key in counters:
            counters[key] += by
            return
        key = key if len(counters) < MOST_KEYS else (name, "…")
        counters[key] = counters.get(key, 0) + by

    def _spread(self, name: str, queue: str) -> Spread:
        histograms = self._kept.histograms
        key = name, queue
        if key in histograms:
            return histograms[key]
        key = key if len(histograms) < MOST_KEYS else (name, "…")
        return histograms.setdefault(key, Spread())

    def _copied(self) -> Snapshot:
        return Snapshot(
            dict(self._kept.counters),
            {
                key: Spread(list(spread.counts), spread.microseconds)
                for key, spread in self._kept.histograms.items()
            },
        )


class Prometheus(InMemory):
    """Keeps figures until the worker adds them to those of all workers, in the database.

    The view ``metrics`` shows the sums, from whatever process: there is nothing to open a
    port for, and what a worker counted outlives it.
    """
