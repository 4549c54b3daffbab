"""One measurement of one contestant under strain: many jobs that wait, an old transaction."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.marks import Marks
from tests.benchmarks.rivals.measures import FIRST_WITHIN, WARM_UP
from tests.benchmarks.rivals.processes import STARTS_WITHIN, ContestantFailed
from tests.benchmarks.rivals.stores import PostgresStore
from tests.benchmarks.stream import Stream, recovered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.rivals.measures import Contestant
    from tests.benchmarks.rivals.processes import Workers
    from tests.benchmarks.rivals.site import Way

FEW_SECONDS, FEWEST, MOST_OF_FEW = 2.0, 1_000, 10_000
BACKLOG_SECONDS, MOST_BACKLOG, FEEDS_IN_BACKLOG = 8.0, 20_000, 20


@dataclass(frozen=True)
class Extent:
    """How much is measured. Times are seconds."""

    waiting: int  # the many of a growth
    filling: float  # at most, to let so many wait
    turns: int  # of few jobs each, with few and with many waiting
    longest: float  # a turn is cut off after that
    hold: float  # how long the old transaction is open
    warm: float  # before a stream is watched
    before: float  # watched without the old transaction
    recovery: float  # at most, watched after its end
    step: float  # the rates of a stream are those of steps


@dataclass(frozen=True)
class Growth:
    """The rate at which the first jobs go, when no others wait and when many do."""

    few: int
    few_per_second: float
    many: int  # as many as could be enqueued in time
    many_per_second: float

    @property
    def ratio(self) -> float:
        return self.many_per_second / self.few_per_second


@dataclass(frozen=True)
class Hold:
    """The rate of a stream, before, beside and after an old transaction."""

    before: float
    during: list[float]  # in steps
    after: list[float]  # in steps, until one is as fast again or it took too long
    recovery: float | None  # seconds until then
    least_waiting: int  # 0: the producer was overtaken, and what is told is its rate

    @property
    def ratio(self) -> float:
        """What is left of the rate in the last step."""
        return self.during[-1] / self.before


def grow(contestant: Contestant, way: Way, extent: Extent) -> Growth:
    """The first jobs of few and of many, in turns that each start the workers anew."""
    few = int(min(MOST_OF_FEW, max(FEWEST, FEW_SECONDS * way.pace)))
    alone = [_turn(contestant, way, few, extent, fed=few) for _ in range(extent.turns)]
    contestant.store.empty()
    many = _fed(contestant, extent.waiting, extent.filling)
    each = min(few, many // extent.turns)
    among = [_turn(contestant, way, each, extent) for _ in range(extent.turns)]
    return Growth(few, statistics.median(alone), many, statistics.median(among))


def _turn(contestant: Contestant, way: Way, few: int, extent: Extent, *, fed: int = 0) -> float:
    """Run so many of those that wait, then stop; those of an earlier turn are gone."""
    if fed:
        contestant.store.empty()
        _fed(contestant, fed, STARTS_WITHIN)
    contestant.store.rest()
    marks = Marks(contestant.folder / "marks")
    with contestant.workers(way, marks) as workers:
        workers.until(lambda: marks.count() > 0, "no job ran", FIRST_WITHIN)
        deadline = time.monotonic() + extent.longest
        enough = f"not {few} jobs ran"
        workers.until(
            lambda: marks.count() >= few or time.monotonic() > deadline, enough, FIRST_WITHIN
        )
    return rate(sorted(marks.moments().values())[:few])


def rate(moments: list[int]) -> float:
    """Runs per second, but for the first tenth, when processes start, and the last one.

    Where few wait the last jobs are fewer than a claim takes at once; where many do they are not.
    """
    edge = len(moments) // WARM_UP
    timed = moments[edge : len(moments) - edge]
    if len(timed) < 2:
        raise ContestantFailed(f"only {len(moments)} jobs ran, too few for a rate")
    return (len(timed) - 1) / (timed[-1] - timed[0]) * 1e9


def _fed(contestant: Contestant, jobs: int, seconds: float, first: int = 0) -> int:
    within = seconds + STARTS_WITHIN
    found: int = contestant.producer.ask(
        "feed", within=within, first=first, jobs=jobs, seconds=seconds
    )
    return found


def hold(contestant: Contestant, way: Way, extent: Extent) -> Hold:
    """A stream of jobs that are enqueued and run, and an old transaction beside it."""
    store = contestant.store
    assert isinstance(store, PostgresStore), "old transactions are measured on PostgreSQL only"
    store.empty()
    marks = Marks(contestant.folder / "marks")
    wanted = int(min(MOST_BACKLOG, BACKLOG_SECONDS * way.pace))
    backlog = _fed(contestant, wanted, extent.filling)
    store.rest()
    with contestant.workers(way, marks) as workers:
        workers.until(lambda: marks.count() > 0, "no job ran", FIRST_WITHIN)
        stream = Stream(
            _counted(workers, marks),
            lambda jobs, first: _fed(contestant, jobs, STARTS_WITHIN, first),
            backlog=backlog,
            at_once=max(1, backlog // FEEDS_IN_BACKLOG),
            step_seconds=extent.step,
            enqueued=backlog,
        )
        return _held(stream, store, extent)


def _counted(workers: Workers, marks: Marks) -> Callable[[], int]:
    def ran() -> int:
        workers.see_alive()
        return marks.count()

    return ran


def _held(stream: Stream, store: PostgresStore, extent: Extent) -> Hold:
    stream.step(extent.warm)
    before = stream.step(extent.before)
    if not before:
        raise ContestantFailed(f"no job ran for {extent.before:g} s")
    with store.old_transaction():
        during = list(stream.steps(extent.hold))
    ended = time.monotonic()
    after = list(stream.recovery(before, extent.recovery))
    took = time.monotonic() - ended if recovered(after[-1], before) else None
    return Hold(before, during, after, took, stream.least_waiting)
