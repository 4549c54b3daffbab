"""Child processes: started, watched from outside through /proc, and gone at the end.

The driver makes itself the parent of every orphan below it, so that whatever a contestant
starts, in whatever group or session, stays within reach of what is counted and killed here.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.rivals.surroundings import ROOT, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TICKS = os.sysconf("SC_CLK_TCK")
LAST_LINES = 25
STARTS_WITHIN, STOPS_WITHIN = 60.0, 3.0


class ContestantFailed(Exception):
    """A contestant could not be installed, started or measured. The text says why."""


def adopt_orphans() -> None:
    """Processes whose parent died become children of this one."""
    if LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def _end_with_driver() -> None:
    """Be asked to stop when the driver dies, even if by SIGKILL."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the parent's pid on; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:]
    except OSError:
        return []


def seconds_of(pid: int) -> float:
    """Processor time of a process alone."""
    fields = stat_of(pid)
    return sum(map(int, fields[10:12])) / TICKS if fields else 0.0


def reaped_by(pid: int) -> float:
    """Processor time of the children that a process has waited for."""
    fields = stat_of(pid)
    return sum(map(int, fields[12:14])) / TICKS if fields else 0.0


def below(pid: int) -> set[int]:
    """All descendants of a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if fields := stat_of(int(folder.name)):
            children.setdefault(int(fields[0]), []).append(int(folder.name))
    found, waiting = set[int](), [pid]
    while waiting:
        more = children.get(waiting.pop(), [])
        found.update(more)
        waiting += more
    return found


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])


class Workers:
    """The worker processes of one contestant, in one way."""

    def __init__(
        self, surroundings: Surroundings, commands: tuple[tuple[str, ...], ...], log: Path
    ) -> None:
        self.log = log
        self._others = below(os.getpid())
        with log.open("wb") as told:
            self.leaders = [
                subprocess.Popen(
                    [sys.executable, "-m", *command],
                    cwd=ROOT,
                    env=surroundings.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_end_with_driver,  # noqa: PLW1509 - the driver has no threads
                )
                for command in commands
            ]

    def pids(self) -> set[int]:
        """Theirs and those of whatever they started."""
        return below(os.getpid()) - self._others

    def seconds(self) -> float:
        """Processor time of all of them, and of those that they have waited for."""
        return sum(seconds_of(pid) + reaped_by(pid) for pid in self.pids())

    def see_alive(self) -> None:
        """An error if one of them ended."""
        ended = [leader.returncode for leader in self.leaders if leader.poll() is not None]
        if ended:
            raise ContestantFailed(f"a worker ended with {ended}:\n{last_lines(self.log)}")

    def until(self, happened: Callable[[], bool], what: str, within: float) -> None:
        """Wait for something; an error if a worker ends before or it takes too long."""
        deadline = time.monotonic() + within
        while not happened():
            self.see_alive()
            if time.monotonic() > deadline:
                raise ContestantFailed(f"{what} within {within:.0f} s:\n{last_lines(self.log)}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Ask, wait a little, kill."""
        for leader in self.leaders:
            if leader.poll() is None:
                leader.terminate()
        deadline = time.monotonic() + STOPS_WITHIN
        while self.pids() and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.01)
        kill_all(self.pids)
        self._reap()

    def _reap(self) -> None:
        for leader in self.leaders:
            leader.poll()
        for pid in self.pids() - {leader.pid for leader in self.leaders}:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_all(pids: Callable[[], set[int]]) -> None:
    """Kill until nobody is left: who is killed may have started another meanwhile."""
    for _ in range(100):
        if not (left := pids()):
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


@contextmanager
def working(
    surroundings: Surroundings, commands: tuple[tuple[str, ...], ...], log: Path
) -> Iterator[Workers]:
    """Workers that are gone afterwards, whatever happens."""
    workers = Workers(surroundings, commands, log)
    try:
        yield workers
    finally:
        workers.stop()


class Producer:
    """The process that enqueues for a contestant."""

    def __init__(self, surroundings: Surroundings, log: Path) -> None:
        self.log = log
        with log.open("wb") as told:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.rivals.producer"],
                cwd=ROOT,
                env=surroundings.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=told,
                start_new_session=True,
                text=True,
            )
        self._answer(STARTS_WITHIN)

    def ask(self, do: str, within: float = STARTS_WITHIN, **how: Any) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **how}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ContestantFailed(f"its producer is gone:\n{last_lines(self.log)}") from None
        return self._answer(within)

    def _answer(self, within: float) -> Any:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], within)[0]:
            self._process.kill()  # a late answer would be taken for that to the next order
            raise ContestantFailed(f"no answer of its producer within {within:.0f} s")
        if not (line := self._process.stdout.readline()):
            raise ContestantFailed(f"its producer ended:\n{last_lines(self.log)}")
        told = json.loads(line)
        if "error" in told:
            raise ContestantFailed(told["error"].strip())
        return told["answer"]

    def stop(self) -> None:
        """It ends by itself when nobody orders any more."""
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                with suppress(BrokenPipeError):
                    end.close()
        try:
            self._process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
