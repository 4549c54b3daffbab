"""Everybody in turns, several times; a contestant that fails is told, the others go on."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.conditions import version_of
from tests.benchmarks.rivals.contestants import site
from tests.benchmarks.rivals.measures import Calm, Contestant, Drain
from tests.benchmarks.rivals.processes import ContestantFailed
from tests.benchmarks.rivals.site import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.benchmarks.rivals.site import Site, Way


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    rounds: int
    seconds: float  # how long a drain should take
    most: int  # jobs in one drain
    idle: float  # seconds, of all rounds together
    samples: int  # wake-ups, of all rounds together


@dataclass
class Figures:
    """What one contestant came to. A list has one entry for each round, None where it failed."""

    site: type[Site]
    version: str = ""
    drains: dict[str, list[Drain | None]] = field(default_factory=dict)
    calms: list[Calm] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.site.name} {self.version}".strip()

    def way(self, name: str) -> Way | None:
        return next((way for way in self.site.ways if way.name == name), None)


class Entrants(ABC):
    """The contestants that could be started, and everybody's figures."""

    def __init__(self, names: Iterable[str]) -> None:
        self.figures = {name: Figures(site(name)) for name in names}
        self._contestants: dict[str, Contestant] = {}

    def enter(self, folder: Path, stack: ExitStack) -> None:
        """Give everybody a database, a producer and tables."""
        for name, figures in self.figures.items():

            def entered(name: str = name, figures: Figures = figures) -> None:
                figures.version = version_of(figures.site)
                self._contestants[name] = Contestant(name, folder, stack)

            self._try(figures, "start", entered)

    @abstractmethod
    def run(self) -> None:
        """Measure everybody."""

    def _try(self, figures: Figures, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a rival may fail in any way, and that is told
            kind = "" if isinstance(error, ContestantFailed) else f"{type(error).__name__}: "
            figures.failures[what] = f"{kind}{error}".strip()
            told = figures.failures[what].splitlines()[-1]
            progress(f"FAILED {figures.site.vendor} {figures.site.name}, {what}: {told}")


class Tournament(Entrants):
    """Drains in every way, and idle workers, in rounds."""

    def __init__(self, names: Iterable[str], extent: Extent) -> None:
        super().__init__(names)
        self.extent = extent

    def run(self) -> None:
        for number in range(1, self.extent.rounds + 1):
            self._round(f"round {number} of {self.extent.rounds}")

    def _round(self, told: str) -> None:
        for name in dict.fromkeys(
            way.name for figures in self.figures.values() for way in figures.site.ways
        ):
            for contestant in self._contestants.values():
                self._drain(contestant, name, told)
        for contestant in self._contestants.values():
            self._calm(contestant, told)

    def _drain(self, contestant: Contestant, name: str, told: str) -> None:
        figures = self.figures[contestant.name]
        if (way := figures.way(name)) is None:
            return
        drains = figures.drains.setdefault(name, [])
        drains.append(None)
        if name in figures.failures and not any(drains):
            return

        def drained() -> None:
            drain = contestant.drain(way, self.extent.seconds, self.extent.most)
            drains[-1] = drain
            progress(f"{told}: {contestant.name}, {name}: {drain.per_second:,.0f}/s")

        self._try(figures, name, drained)

    def _calm(self, contestant: Contestant, told: str) -> None:
        figures = self.figures[contestant.name]
        way, what = figures.way(DEFAULTS), "idle and wake-ups"
        if way is None or (what in figures.failures and not figures.calms):
            return
        rounds, extent = self.extent.rounds, self.extent

        def calmed() -> None:
            calm = contestant.calm(way, extent.idle / rounds, -(-extent.samples // rounds))
            figures.calms.append(calm)
            middle = sorted(calm.delays_ms)[len(calm.delays_ms) // 2]
            progress(f"{told}: {contestant.name}, woken after {middle:.1f} ms")

        self._try(figures, what, calmed)


BEGAN = time.monotonic()


def progress(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s  {text}", file=sys.stderr, flush=True)
