"""A contest from its first process to its last, and on what it was held."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.conditions import conditions, processor
from tests.benchmarks.rivals.processes import adopt_orphans, below, kill_all
from tests.benchmarks.rivals.site import POSTGRES
from tests.benchmarks.rivals.stores import sweep

if TYPE_CHECKING:
    from tests.benchmarks.rivals.rounds import Entrants


def run(entrants: Entrants) -> dict[str, str]:
    """Measure, and leave nothing behind; the conditions, by vendor."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    vendors = dict.fromkeys(one.site.vendor for one in entrants.figures.values())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rivals-")))
        if POSTGRES in vendors:
            stack.callback(sweep)
        stack.callback(kill_all, lambda: below(os.getpid()))
        try:
            told = {vendor: _conditions(vendor, folder) for vendor in vendors}
            entrants.enter(folder, stack)
            entrants.run()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
    return {vendor: f"{text}\n  load at the end = {_load()}" for vendor, text in told.items()}


def _conditions(vendor: str, folder: Path) -> str:
    text = conditions(vendor, folder)
    return f"{vendor}: {text}\n  processor = {processor()}\n  load at the start = {_load()}"


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())
