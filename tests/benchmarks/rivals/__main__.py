"""Measure other projects' queues and ours in turns, each in a throw-away database.

make bench-rivals, or python -m tests.benchmarks.rivals --help in an environment that has the
packages of requirements.txt beside this file.
"""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import write_json
from tests.benchmarks.rivals.arena import run
from tests.benchmarks.rivals.contestants import ADAPTERS
from tests.benchmarks.rivals.rounds import Extent, Figures, Tournament
from tests.benchmarks.rivals.tables import failures, tables

FULL = Extent(rounds=3, seconds=1.5, most=200_000, idle=10.0, samples=201)
QUICK = Extent(rounds=1, seconds=0.5, most=50_000, idle=2.0, samples=20)


def main() -> int:
    options = _parser().parse_args()
    chosen = QUICK if options.quick else FULL
    extent = Extent(**{**asdict(chosen), "most": options.jobs or chosen.most})
    tournament = Tournament(options.only or ADAPTERS, extent)
    try:
        told = run(tournament)
    except KeyboardInterrupt:
        print("interrupted; its processes and databases are gone", file=sys.stderr)
        return 128 + signal.SIGINT
    paragraphs = failures(tournament.figures)
    for vendor, condition in told.items():
        shown = tables(tournament.figures, vendor)
        print("\n\n".join([f"\n{condition}", *(table.text() for table in shown)]))
    print("\n".join(["", *paragraphs]))
    if options.markdown:
        Path(options.markdown).write_text(_markdown(told, tournament.figures), encoding="utf-8")
    write_json(options.json, _plain(told, tournament.figures))
    return 1 if paragraphs else 0


def _markdown(told: dict[str, str], figures: dict[str, Figures]) -> str:
    parts = [
        "\n\n".join([f"```\n{text}\n```", *(table.markdown() for table in tables(figures, vendor))])
        for vendor, text in told.items()
    ]
    return "\n\n".join([*parts, *failures(figures)]) + "\n"


def _plain(told: dict[str, str], figures: dict[str, Figures]) -> dict[str, Any]:
    """Everything that was measured, for a program to read."""
    contestants = {
        name: {
            "version": one.version,
            "drains": {
                way: [asdict(drain) if drain else None for drain in drains]
                for way, drains in one.drains.items()
            },
            "calms": [asdict(calm) for calm in one.calms],
            "failures": one.failures,
        }
        for name, one in figures.items()
    }
    return {"conditions": told, "contestants": contestants}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.rivals", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=ADAPTERS,
        metavar="NAME",
        help=f"measure these only: {', '.join(ADAPTERS)}; multiples need django_jobs and bare too",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="at most N jobs in one drain")
    parser.add_argument(
        "--quick", action="store_true", help="one short round, to see that it works"
    )
    parser.add_argument("--json", metavar="FILE", help="write every figure to this file")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
