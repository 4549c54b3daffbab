"""Processes that the demo starts, and that are gone when it ends, however it ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from testproject.demo.telling import DidNotHappen

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
PATIENCE = 20.0
LOOK_EVERY = 0.05


def wait_for(what: str, look: Callable[[], T | None], patience: float = PATIENCE) -> T:
    """Look until there is something to see; raises DidNotHappen when the patience is over."""
    until = time.monotonic() + patience
    while not (seen := look()):
        if time.monotonic() > until:
            raise DidNotHappen(f"{what} (waited {patience:.0f} s for it)")
        time.sleep(LOOK_EVERY)
    return seen


def manage(*arguments: str) -> str:
    """What a management command prints; raises DidNotHappen when it fails."""
    done = subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, str(MANAGE), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode:
        told = f"{done.stdout}\n{done.stderr}".strip()
        raise DidNotHappen(f"manage.py {' '.join(arguments)} ended with {done.returncode}:\n{told}")
    return done.stdout


class Process:
    """A management command in the background, its output in two files."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.name = name
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, "-u", str(MANAGE), *arguments],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        """What it printed so far."""
        return self._out.read_text(errors="replace")

    def everything(self) -> str:
        """The same, and what it complained about."""
        return self.output() + self._err.read_text(errors="replace")

    def check(self) -> None:
        """Raise DidNotHappen when it ended by itself."""
        if self._process.poll() is not None:
            raise DidNotHappen(
                f"the {self.name} goes on running: it ended with {self._process.returncode}"
            )

    def stop(self) -> int:
        """Ask it to end, insist if it does not, and tell its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                return self._process.wait(PATIENCE / 2)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()
