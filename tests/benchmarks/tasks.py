"""Backends of Django's Tasks on PostgreSQL, in turns: enqueue, drain, look results up.

make bench-tasks, or python -m tests.benchmarks.tasks in the environment of the rivals.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.harness import write_json
from tests.benchmarks.rivals.arena import run
from tests.benchmarks.rivals.contestants import TASKS
from tests.benchmarks.rivals.rounds import Extent, Tournament, progress
from tests.benchmarks.rivals.tables import Table, draining, failures, multiple

if TYPE_CHECKING:
    from tests.benchmarks.rivals.measures import Contestant

OURS, *RIVALS = TASKS
TURNS, ENQUEUED, READS = 5, 400, 1000
FULL = Extent(rounds=3, seconds=1.5, most=20_000, idle=0.0, samples=0)
QUICK = Extent(rounds=1, seconds=0.5, most=5_000, idle=0.0, samples=0)
ASKED = (("enqueue", 1.0), ("drain", 8.0))
SLOWER_THAN_A_ROW = 1.5


class Tasks(Tournament):
    """Drains in every way; then enqueues, and results of the last drain, in short turns."""

    def __init__(self, names: list[str], extent: Extent) -> None:
        super().__init__(names, extent)
        # For each turn: the contestants that were measured in it, by name.
        self.enqueued: list[dict[str, float]] = []
        self.looked_up: list[dict[str, dict[str, float]]] = []

    def _calm(self, contestant: Contestant, told: str) -> None:
        """Wake-ups are the business of the rivals' benchmark."""

    def _round(self, told: str) -> None:
        super()._round(told)
        for _ in range(TURNS):
            self.looked_up.append(self._turn("results", lambda one: one.look_up(READS)))
        for _ in range(TURNS):
            self.enqueued.append(self._turn("enqueue", lambda one: one.enqueue(ENQUEUED)))
        rates = {name: f"{rate:,.0f}/s" for name, rate in self.enqueued[-1].items()}
        progress(f"{told}: enqueue {rates}")

    def _turn(self, what: str, measured: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, contestant in self._contestants.items():

            def measure(name: str = name, contestant: Contestant = contestant) -> None:
                found[name] = measured(contestant)

            self._try(self.figures[name], what, measure)
        return found

    def ratios(self) -> dict[str, float]:
        """Ours as multiples of the faster rival's, and what a result costs beside its row."""
        found = {"enqueue": median_ratio(self.enqueued)}
        for way in self.figures[OURS].site.ways:
            drains = [one.drains.get(way.name, []) for one in self.figures.values()]
            rounds = [
                {name: drain.per_second for name, drain in zip(TASKS, turn, strict=True) if drain}
                for turn in zip(*drains, strict=False)
            ]
            found[f"drain, {way.name}"] = median_ratio(rounds)
        costs = [one["rows"] / one["results"] for one in self.looked_up_by(OURS)]
        found["get_result, beside its row"] = statistics.median(costs) if costs else 0.0
        return found

    def looked_up_by(self, name: str) -> list[dict[str, float]]:
        return [turn[name] for turn in self.looked_up if name in turn]

    def tables(self) -> list[Table]:
        ours = self.figures[OURS]
        return [draining(self.figures, ours, None, "PostgreSQL"), self._singly(), self._verdict()]

    def _singly(self) -> Table:
        rows = []
        for name, figures in self.figures.items():
            rates = [turn[name] for turn in self.enqueued if name in turn]
            read = self.looked_up_by(name)
            rows.append(
                [
                    figures.label,
                    _shown(rates),
                    _shown([one["results"] for one in read]),
                    _shown([one["rows"] for one in read]),
                    multiple(statistics.median(one["rows"] / one["results"] for one in read))
                    if read
                    else "–",
                ]
            )
        headings = [
            "contestant",
            "enqueue /s",
            "get_result /s",
            "its row by key /s",
            "row / result",
        ]
        return Table("PostgreSQL: one by one", headings, rows, words=1)

    def _verdict(self) -> Table:
        rows = []
        for what, ratio in self.ratios().items():
            asked = next((f"≥ {least:g}" for word, least in ASKED if what.startswith(word)), "")
            rows.append([what, asked or f"≤ {SLOWER_THAN_A_ROW}", f"{ratio:.2f}"])
        title = "PostgreSQL: beside the faster of the others, median of the turns' ratios"
        return Table(title, ["what", "asked", "measured"], rows, words=1)


def median_ratio(turns: list[dict[str, float]]) -> float:
    """Ours, over the fastest of the others in the same turn."""
    found = []
    for turn in turns:
        others = [turn[name] for name in RIVALS if name in turn]
        if OURS in turn and others:
            found.append(turn[OURS] / max(others))
    return statistics.median(found) if found else 0.0


def _shown(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f}" if rates else "failed"


def main() -> int:
    options = _parser().parse_args()
    extent = QUICK if options.quick else FULL
    tournament = Tasks(
        list(TASKS), Extent(**{**asdict(extent), "rounds": options.rounds or extent.rounds})
    )
    try:
        told = run(tournament)
    except KeyboardInterrupt:
        print("interrupted; its processes and databases are gone", file=sys.stderr)
        return 128 + signal.SIGINT
    shown, paragraphs = tournament.tables(), failures(tournament.figures)
    conditions = "\n".join(told.values())
    print("\n\n".join([f"\n{conditions}", *(table.text() for table in shown), *paragraphs]))
    if options.markdown:
        parts = [f"```\n{conditions}\n```", *(table.markdown() for table in shown), *paragraphs]
        Path(options.markdown).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    write_json(options.json, tournament.ratios())
    return 1 if paragraphs else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.tasks", description=__doc__)
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, 3 by default")
    parser.add_argument("--quick", action="store_true", help="one short round: does it work?")
    parser.add_argument("--json", metavar="FILE", help="write the ratios to this file")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
