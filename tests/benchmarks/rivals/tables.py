"""The figures as tables: aligned for a terminal, or in Markdown for the documentation."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.contestants import BARE, OURS
from tests.benchmarks.rivals.site import ONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.benchmarks.rivals.measures import Drain
    from tests.benchmarks.rivals.rounds import Figures

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """Text cells under headings; the first columns are words, the others numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    words: int

    def text(self) -> str:
        lines = [self.headings, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        aligned = [
            "  ".join(
                cell.ljust(width) if column < self.words else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *("  " + line for line in aligned)])

    def markdown(self) -> str:
        rule = ["---" if column < self.words else "---:" for column in range(len(self.headings))]
        lines = ["| " + " | ".join(line) + " |" for line in (self.headings, rule, *self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines])


def tables(figures: dict[str, Figures], vendor: str) -> list[Table]:
    """All tables of one vendor."""
    prefix = next((name.rpartition(":")[0] for name in figures if _is(figures[name], vendor)), "")
    key = f"{prefix}:" if prefix else ""
    shown = {name: one for name, one in figures.items() if _is(one, vendor)}
    ours, bare = figures.get(key + OURS), figures.get(key + BARE)
    return [draining(shown, ours, bare, vendor), _rest(shown, ours, vendor), _kept(shown, vendor)]


def _is(figures: Figures, vendor: str) -> bool:
    return figures.site.vendor == vendor


def draining(
    shown: dict[str, Figures], ours: Figures | None, bare: Figures | None, vendor: str
) -> Table:
    headings = [
        "contestant",
        "setting",
        "jobs",
        "runs /s",
        "settled /s",
        "of a bare loop",
        "ours / it",
    ]
    headings += ["worker µs", "server µs", "µs, it / ours"]
    rows = []
    for figures in shown.values():
        for way in figures.site.ways:
            found = [drain for drain in figures.drains.get(way.name, ()) if drain]
            told = [figures.label, f"{way.name}: {way.told}"]
            if not found:
                rows.append([*told, "failed", *[NOTHING] * 7])
                continue
            rows.append(
                [
                    *told,
                    f"{_median(drain.jobs for drain in found):,.0f}",
                    f"{_median(drain.per_second for drain in found):,.0f}",
                    f"{_median(drain.settled_per_second for drain in found):,.0f}",
                    _ratio(figures, bare, way.name, "per_second", ONE),
                    _ratio(ours, figures, way.name, "per_second"),
                    f"{_median(drain.worker_cpu for drain in found):,.0f}",
                    f"{_median(drain.server_cpu for drain in found):,.0f}",
                    _ratio(figures, ours, way.name, "cpu"),
                ]
            )
    return Table(f"{vendor}: draining no-op jobs", headings, rows, words=2)


def _ratio(
    one: Figures | None, other: Figures | None, way: str, what: str, others_way: str = ""
) -> str:
    """The median of the rounds' ratios; both were measured within the same minutes."""
    if one is None or other is None:
        return NOTHING
    pairs = zip(one.drains.get(way, ()), other.drains.get(others_way or way, ()), strict=False)
    found = [_value(a, what) / _value(b, what) for a, b in pairs if a and b and _value(b, what)]
    return multiple(_median(found)) if found else NOTHING


def multiple(value: float) -> str:
    """With about as many digits as one may believe."""
    digits = 0 if value >= 10 else 1 if value >= 1 else 2 if value >= 0.1 else 3
    return f"{value:,.{digits}f}"


def _value(drain: Drain, what: str) -> float:
    value: float = getattr(drain, what)
    return value


def _rest(shown: dict[str, Figures], ours: Figures | None, vendor: str) -> Table:
    headings = ["contestant", "one by one /s", "ours / it", "bulk /s", "ours / it"]
    headings += ["wake-up p50 ms", "p95", "p99", "idle, % of a core"]
    rows = []
    for figures in shown.values():
        row = [figures.label]
        for how in ("one", "many"):
            rate, mine = _enqueued(figures, how), _enqueued(ours, how) if ours else None
            row.append(f"{rate:,.0f}" if rate else NOTHING)
            row.append(multiple(mine / rate) if rate and mine else NOTHING)
        delays = sorted(delay for calm in figures.calms for delay in calm.delays_ms)
        row += [f"{delays[int(len(delays) * at)]:,.1f}" if delays else NOTHING for at in QUANTILES]
        idle = statistics.fmean(calm.idle for calm in figures.calms) if figures.calms else None
        row.append(NOTHING if idle is None else f"{idle * 100:.2f}")
        rows.append(row)
    return Table(f"{vendor}: enqueueing; waking an idle worker", headings, rows, words=1)


QUANTILES = (0.50, 0.95, 0.99)


def _enqueued(figures: Figures, how: str) -> float | None:
    found = [
        drain.enqueued[how]
        for drains in figures.drains.values()
        for drain in drains
        if drain and how in drain.enqueued
    ]
    return _median(found) if found else None


def _kept(shown: dict[str, Figures], vendor: str) -> Table:
    rows = [[figures.label, figures.site.keeps] for figures in shown.values()]
    return Table(f"{vendor}: what each keeps or gives up", ["contestant", "keeps"], rows, words=2)


def failures(figures: dict[str, Figures]) -> list[str]:
    """A paragraph for everything that could not be measured."""
    return [
        f"FAILED {one.site.vendor} {one.label}, {what}: {why}"
        for one in figures.values()
        for what, why in one.failures.items()
    ]


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)
