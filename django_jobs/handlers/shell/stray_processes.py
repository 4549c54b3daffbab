"""Find and kill processes that programs of jobs left behind.

A launcher and its program start with a mark: a resource limit that has no effect any more (of
file locks, since Linux 2.5). All their descendants inherit it, even in sessions and environments
of their own. A process may lower such a limit, but the mark of programs is the lowest already,
and raising it takes a capability of root's. On systems without the limit nothing is marked, and
nothing is found.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

try:
    import resource
except ImportError:  # on Windows, where no programs are run
    resource = None  # type: ignore[assignment] # see above

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

LAUNCHER = 1
PROGRAM = 0
HAS_MARKS = sys.platform == "linux"
SWEEP_SECONDS = 1.5
PAUSE_SECONDS = 0.002
PASSES_IN_VAIN = 10
LARGEST_TREE = 1000

RLIMIT_LOCKS = 10
_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4


def end_strays(seconds: float = SWEEP_SECONDS) -> None:
    """Kill the programs that have lost their launcher, until none is left or time is up.

    They have become children of this process or one of its ancestors, where no launcher starts
    any. Programs of other running jobs are below live launchers, and are left alone.
    """
    sweep = Sweep(_here_and_above(), PROGRAM, seconds)
    while sweep.goes_on():
        time.sleep(sweep.pause)


class Sweep:
    """Kills in passes the descendants of some processes whose mark is at most ``highest``.

    It ends when time is up, or after several passes that found neither a live process nor one
    that had just ended: a program that keeps forking into new sessions always has a live child.
    """

    def __init__(
        self, parents: Collection[int], highest: int, seconds: float = SWEEP_SECONDS
    ) -> None:
        self._parents = parents
        self._highest = highest
        self._until = time.monotonic() + seconds
        self._dead: set[int] = set()
        self._in_vain = 0

    def goes_on(self) -> bool:
        """Make one pass; returns whether another one is due."""
        if not HAS_MARKS or mark_of(0) <= LAUNCHER:  # below a launcher every process has the mark
            return False
        strays = 0
        for pid in reversed([*_children_of(self._parents)]):  # the youngest first: it forks next
            if pid in self._dead:
                continue
            if mark_of(pid) <= self._highest:
                strays += 1
                self._end_tree(pid)
            else:
                strays += not os.path.exists(f"/proc/{pid}")  # noqa: PTH110 - as below
        self._in_vain = 0 if strays else self._in_vain + 1
        return self._in_vain < PASSES_IN_VAIN and time.monotonic() < self._until

    @property
    def pause(self) -> float:
        """Seconds until the next pass: 0 while there is something to kill."""
        return PAUSE_SECONDS if self._in_vain else 0.0

    def _end_tree(self, pid: int) -> None:
        """Kill a process and its descendants, which may have left its session."""
        tree = [pid]
        for member in tree:
            tree += _children_of([member]) if len(tree) < LARGEST_TREE else ()
        for member in reversed(tree):
            if not _end(member):
                self._dead.add(member)


def mark_of(pid: int) -> float:
    """The mark of a process: LAUNCHER, PROGRAM, or more for any other."""
    try:
        limit = resource.prlimit(pid, RLIMIT_LOCKS)[1]
    except PermissionError:  # of another user, or only of another group: a setgid program
        return _mark_shown(pid)
    except (AttributeError, OSError, ValueError):  # it is gone
        return float("inf")
    return float("inf") if limit == resource.RLIM_INFINITY else limit


def _mark_shown(pid: int) -> float:
    """The mark of a process from a file that every user may read."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:  # noqa: PTH123 - as below
            (line,) = (line for line in file if line.startswith(b"Max file locks"))
        return float(line.split()[-2].replace(b"unlimited", b"inf"))
    except (OSError, ValueError):
        return float("inf")


def forbid_dumps() -> None:
    """Keep other processes of the same user from reading this one's memory and environment.

    Forks inherit this, programs that it starts do not. Only root can then debug the process.
    """
    ask_system(_PR_SET_DUMPABLE, 0)


def forbids_dumps() -> bool:
    return ask_system(_PR_GET_DUMPABLE) == 0


class _Block:
    lock = threading.Lock()
    open = 0
    lifted = False


@contextmanager
def dumps_forbidden() -> Iterator[None]:
    """Forbid dumps while this block, or one like it in another thread, is open."""
    with _Block.lock:
        _Block.open += 1
        if _Block.open == 1 and ask_system(_PR_GET_DUMPABLE) == 1:
            _Block.lifted = True
            forbid_dumps()
    try:
        yield
    finally:
        with _Block.lock:
            _Block.open -= 1
            if not _Block.open and _Block.lifted:
                _Block.lifted = False
                ask_system(_PR_SET_DUMPABLE, 1)


def _end(pid: int) -> bool:
    """Kill a process that has a mark, or reap it; whether it was alive and could be killed."""
    parent, lives = _state(pid)
    if not lives:
        if parent == os.getpid():  # no other code waits for a marked process
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return False
    with suppress(OSError):  # its group dies at once, so that none of it can fork meanwhile
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:  # it belongs to another user by now
        return False
    except ProcessLookupError:
        pass
    return True


def _children_of(parents: Collection[int]) -> Iterator[int]:
    for parent in parents:
        try:
            with open(f"/proc/{parent}/task/{parent}/children", "rb") as file:  # noqa: PTH123 - a Path costs more than all else here
                children = file.read().split()
        except OSError:  # the system has no such list, or hides it
            yield from (pid for pid in _processes() if _state(pid)[0] == parent)
        else:
            yield from map(int, children)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as above
    except OSError:
        return []


def _here_and_above() -> set[int]:
    above, pid = {1, os.getpid()}, os.getppid()
    while pid:
        above.add(pid)
        pid, _ = _state(pid)
    return above


def _state(pid: int) -> tuple[int, bool]:
    """The parent of a process (0 if unreadable), and whether it is alive."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - one read in /proc
            state, parent, *_ = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return 0, False
    return int(parent), state not in b"ZX"


def ask_system(option: int, value: int = 0) -> int:
    """Call ``prctl`` where there is one; returns its answer, or -1."""
    import ctypes  # noqa: PLC0415 - few processes that enqueue also run programs

    try:
        answer: int = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return -1
    return answer
