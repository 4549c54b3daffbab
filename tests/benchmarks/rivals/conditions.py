"""Where and on what the figures are taken, told by a site of ours.

python -m tests.benchmarks.rivals.conditions, with the surroundings of a contestant.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.contestants import OURS
from tests.benchmarks.rivals.processes import ContestantFailed
from tests.benchmarks.rivals.site import MACHINE, POSTGRES, REDIS
from tests.benchmarks.rivals.surroundings import ROOT, Surroundings

if TYPE_CHECKING:
    from tests.benchmarks.rivals.site import Site


def conditions(vendor: str, folder: Path) -> str:
    """Python, machine and server settings, as the other benchmarks print them."""
    if vendor == REDIS:
        from tests.benchmarks.rivals.redis_server import conditions_of

        return conditions_of(folder)
    name, database = (OURS, "postgres") if vendor == POSTGRES else (f"sqlite:{OURS}", "conditions")
    if vendor != POSTGRES:
        database = str(folder / database)
    told = subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=ROOT,
        env=Surroundings(name, MACHINE, database).environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.rstrip() or f"unknown:\n{told.stderr}"


def version_of(contestant: type[Site]) -> str:
    """The version that is installed beside ours."""
    if not contestant.distribution:
        return ""
    try:
        return version(contestant.distribution)
    except PackageNotFoundError:
        raise ContestantFailed(f"{contestant.distribution} is not installed") from None


def processor() -> str:
    """The name that the kernel gives the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def main() -> None:
    import django

    from tests.benchmarks.harness import print_conditions

    django.setup()
    print_conditions()


if __name__ == "__main__":
    main()
