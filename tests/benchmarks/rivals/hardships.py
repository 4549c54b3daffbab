"""Other projects' queues and ours on PostgreSQL, among many jobs and beside an old transaction.

make bench-hardships, or python -m tests.benchmarks.rivals.hardships --help in the environment of
the rivals.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.harness import write_json
from tests.benchmarks.rivals.arena import run
from tests.benchmarks.rivals.contestants import ADAPTERS
from tests.benchmarks.rivals.rounds import Entrants, progress
from tests.benchmarks.rivals.site import ONE
from tests.benchmarks.rivals.strains import Extent, Growth, Hold, grow, hold
from tests.benchmarks.rivals.tables import NOTHING, Table, failures
from tests.benchmarks.stream import RECOVERED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.benchmarks.rivals.measures import Contestant
    from tests.benchmarks.rivals.rounds import Figures

NAMES = [name for name in ADAPTERS if ":" not in name]  # those of other vendors begin with one
FULL = Extent(
    waiting=200_000,
    filling=30.0,
    turns=3,
    longest=10.0,
    hold=30.0,
    warm=3.0,
    before=5.0,
    recovery=30.0,
    step=5.0,
)
QUICK = Extent(
    waiting=20_000,
    filling=4.0,
    turns=1,
    longest=3.0,
    hold=4.0,
    warm=1.0,
    before=2.0,
    recovery=4.0,
    step=2.0,
)
GROWTH, OLD = "growth", "old transaction"


class Hardships(Entrants):
    """Both hardships once for everybody, each in its tuned way of one process."""

    def __init__(self, names: Iterable[str], extent: Extent) -> None:
        super().__init__(names)
        self.extent = extent
        self.growths: dict[str, Growth] = {}
        self.holds: dict[str, Hold] = {}

    def run(self) -> None:
        for contestant in self._contestants.values():
            self._try(self.figures[contestant.name], GROWTH, partial(self._grow, contestant))
        for contestant in self._contestants.values():
            self._try(self.figures[contestant.name], OLD, partial(self._hold, contestant))

    def _grow(self, contestant: Contestant) -> None:
        way = self.figures[contestant.name].way(ONE)
        assert way is not None
        found = self.growths[contestant.name] = grow(contestant, way, self.extent)
        rates = f"{found.few_per_second:,.0f}/s, {found.many_per_second:,.0f}/s"
        progress(f"{contestant.name}, {found.few:,} and {found.many:,} waiting: {rates}")

    def _hold(self, contestant: Contestant) -> None:
        way = self.figures[contestant.name].way(ONE)
        assert way is not None
        found = self.holds[contestant.name] = hold(contestant, way, self.extent)
        rates = f"{found.before:,.0f}/s, {found.during[-1]:,.0f}/s"
        progress(f"{contestant.name}, before and beside an old transaction: {rates}")

    def tables(self) -> list[Table]:
        return [
            _growths(self.figures, self.growths),
            _holds(self.figures, self.holds, self.extent),
        ]

    def plain(self) -> dict[str, Any]:
        """Everything that was measured, for a program to read."""
        return {
            name: {
                "version": one.version,
                GROWTH: asdict(self.growths[name]) if name in self.growths else None,
                OLD: asdict(self.holds[name]) if name in self.holds else None,
                "failures": one.failures,
            }
            for name, one in self.figures.items()
        }


def _growths(figures: dict[str, Figures], growths: dict[str, Growth]) -> Table:
    headings = ["contestant", "few", "runs /s", "many", "runs /s", "many / few"]
    rows = []
    for name, one in figures.items():
        if found := growths.get(name):
            cells = [f"{found.few:,}", f"{found.few_per_second:,.0f}"]
            cells += [f"{found.many:,}", f"{found.many_per_second:,.0f}", f"{found.ratio:.2f}"]
        else:
            cells = _failed(headings)
        rows.append([one.label, *cells])
    return Table("PostgreSQL: the first jobs of few and of many that wait", headings, rows, words=1)


def _holds(figures: dict[str, Figures], holds: dict[str, Hold], extent: Extent) -> Table:
    step = min(extent.step, extent.hold)
    headings = ["contestant", "before /s", f"its last {step:g} s /s", "of before"]
    headings += [f"at {RECOVERED:g} again after s", "least waiting"]
    rows = []
    for name, one in figures.items():
        if found := holds.get(name):
            cells = [f"{found.before:,.0f}", f"{found.during[-1]:,.0f}", f"{found.ratio:.2f}"]
            cells += [_recovery(found, extent), f"{found.least_waiting:,}"]
        else:
            cells = _failed(headings)
        rows.append([one.label, *cells])
    title = f"PostgreSQL: enqueueing and draining beside a transaction open for {extent.hold:g} s"
    return Table(title, headings, rows, words=1)


def _recovery(found: Hold, extent: Extent) -> str:
    if found.recovery is None:
        return f"not in {extent.recovery:g}: {found.after[-1] / found.before:.2f}"
    return f"{found.recovery:.0f}"


def _failed(headings: list[str]) -> list[str]:
    return ["failed", *[NOTHING] * (len(headings) - 2)]


def main() -> int:
    options = _parser().parse_args()
    extent = QUICK if options.quick else FULL
    extent = replace(
        extent, waiting=options.waiting or extent.waiting, hold=options.hold or extent.hold
    )
    hardships = Hardships(options.only or NAMES, extent)
    try:
        told = run(hardships)
    except KeyboardInterrupt:
        print("interrupted; its processes and databases are gone", file=sys.stderr)
        return 128 + signal.SIGINT
    shown, paragraphs = hardships.tables(), failures(hardships.figures)
    conditions = "\n".join(told.values())
    print("\n\n".join([f"\n{conditions}", *(table.text() for table in shown), *paragraphs]))
    if options.markdown:
        parts = [f"```\n{conditions}\n```", *(table.markdown() for table in shown), *paragraphs]
        Path(options.markdown).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    write_json(options.json, {"conditions": told, "contestants": hardships.plain()})
    return 1 if paragraphs else 0


def _parser() -> argparse.ArgumentParser:
    name = "python -m tests.benchmarks.rivals.hardships"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=NAMES,
        metavar="NAME",
        help=f"measure these only: {', '.join(NAMES)}",
    )
    parser.add_argument("--quick", action="store_true", help="little of each: does it work?")
    parser.add_argument(
        "--waiting",
        type=int,
        metavar="N",
        help=f"let so many wait, {FULL.waiting:,} by default; those that are enqueued more slowly "
        f"wait in as many as come within {FULL.filling:g} s",
    )
    parser.add_argument(
        "--hold",
        type=float,
        metavar="SECONDS",
        help=f"keep the old transaction open for so long, {FULL.hold:g} s by default",
    )
    parser.add_argument("--json", metavar="FILE", help="write every figure to this file")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
