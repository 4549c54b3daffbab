"""Collectors of metrics. ``METRICS`` names the classes; each is made once per process."""

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
    """The interface of the classes in ``METRICS``. Calls come from several threads.

    They come from the worker's own process, between its jobs: a slow collector slows all
    jobs down. Exceptions are logged and change nothing.
    """

    def increment(self, name: str, queue: str, by: int = 1) -> None:
        """Count something."""

    def observe(self, name: str, queue: str, seconds: float) -> None:
        """Record how long something took."""


class Watcher(Collector, Protocol):
    """A collector that also exports gauges. ``watch`` is called once, before any count."""

    def watch(self, gauges: Gauges) -> None:
        """Keep the object to read gauges from later."""


@dataclass(slots=True)
class Spread:
    """A histogram of durations. ``counts`` has an entry for each of ``BUCKETS`` and a last one
    for longer durations; the entries are not cumulative.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    microseconds: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class Snapshot:
    """Counters and histograms by name and queue."""

    counters: dict[Key, int] = field(default_factory=dict)
    histograms: dict[Key, Spread] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counters or self.histograms)


class InMemory:
    """Keeps metrics in this process, for as long as it lives; the default.

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
        """The state of queues and workers of the whole installation. Each call reads the stores,
        but at most every few seconds. Raises what they raise.
        """
        return [] if self._gauges is None else self._gauges.read()

    def observe_all(self, name: str, queue: str, times: Iterable[float]) -> None:
        """Record many observations at once, which is much cheaper than one by one."""
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
        """Return what was collected, and start from zero."""
        with self._lock:
            taken, self._kept = self._kept, Snapshot()
            return taken

    def give_back(self, taken: Snapshot) -> None:
        """Add back a snapshot that was taken and could not be used."""
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
    """Keeps metrics until the worker adds them to the totals in the database.

    The view ``metrics`` shows the totals from any process: no worker has to open a port, and
    its counts outlive it.
    """
