"""What programs of jobs start: how it is known again, wherever it went, and how it is ended.

A launcher and its program are born with a mark, a limit that counts nothing any more (of file
locks, since Linux 2.5). All that they start inherits it, whatever session or environment it gives
itself. A process may lower such a limit, but the mark of programs is the lowest; to raise it
again takes a right of root's. Where there are no such limits nothing is marked, and nothing
found.
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
    resource = None  # type: ignore[assignment] # as said

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
    """Kill the programs that have lost their launcher, until none is found or time is up.

    They went to this process or to one above it, where no launcher puts any. What other jobs
    run at the same time is below launchers that live, and not meant.
    """
    sweep = Sweep(_here_and_above(), PROGRAM, seconds)
    while sweep.goes_on():
        time.sleep(sweep.pause)


class Sweep:
    """Kills, pass after pass, what is below these processes and has a mark up to this one.

    It is over when time is up, or when several passes found nothing, and none that had just
    ended: of what forks and ends, and forks and ends, in sessions of their own, the next one lives.
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
        """Whether another pass is due after this one."""
        if not HAS_MARKS or mark_of(0) <= LAUNCHER:  # below a launcher all have the mark
            return False
        found = 0
        for pid in reversed([*_children_of(self._parents)]):  # the youngest first: it forks next
            if pid in self._dead:
                continue
            if mark_of(pid) <= self._highest:
                found += 1
                self._end_tree(pid)
            else:
                found += not os.path.exists(f"/proc/{pid}")  # noqa: PTH110 - as below
        self._in_vain = 0 if found else self._in_vain + 1
        return self._in_vain < PASSES_IN_VAIN and time.monotonic() < self._until

    @property
    def pause(self) -> float:
        """Seconds until then: none as long as there is something to hunt."""
        return PAUSE_SECONDS if self._in_vain else 0.0

    def _end_tree(self, pid: int) -> None:
        """Kill a process and what is below it: that may have left its session, and fork next."""
        tree = [pid]
        for one in tree:
            tree += _children_of([one]) if len(tree) < LARGEST_TREE else ()
        for one in reversed(tree):
            if not _end(one):
                self._dead.add(one)


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
    """The same as the system shows it to everybody."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:  # noqa: PTH123 - as below
            (line,) = (line for line in file if line.startswith(b"Max file locks"))
        return float(line.split()[-2].replace(b"unlimited", b"inf"))
    except (OSError, ValueError):
        return float("inf")


def keep_to_itself() -> None:
    """Let no process of the same user read the memory and environment of this one.

    Its forks inherit that, programs that it starts do not. Only root may debug it then.
    """
    ask_system(_PR_SET_DUMPABLE, 0)


def is_kept_to_itself() -> bool:
    return ask_system(_PR_GET_DUMPABLE) == 0


class _Kept:
    lock = threading.Lock()
    by = 0
    lifted = False


@contextmanager
def kept_to_itself() -> Iterator[None]:
    """The same for as long as the block, and others like it in other threads, are open."""
    with _Kept.lock:
        _Kept.by += 1
        if _Kept.by == 1 and ask_system(_PR_GET_DUMPABLE) == 1:
            _Kept.lifted = True
            keep_to_itself()
    try:
        yield
    finally:
        with _Kept.lock:
            _Kept.by -= 1
            if not _Kept.by and _Kept.lifted:
                _Kept.lifted = False
                ask_system(_PR_SET_DUMPABLE, 1)


def _end(pid: int) -> bool:
    """Kill a process that has a mark, or reap it; whether it was alive and could be killed."""
    parent, lives = _state(pid)
    if not lives:
        if parent == os.getpid():  # what has the mark is nothing that others wait for
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return False
    with suppress(OSError):  # its group is of its session, and dies as one: none can fork meanwhile
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:  # of another user by now, and out of reach
        return False
    except ProcessLookupError:
        pass
    return True


def _children_of(parents: Collection[int]) -> Iterator[int]:
    for parent in parents:
        try:
            with open(f"/proc/{parent}/task/{parent}/children", "rb") as file:  # noqa: PTH123 - a Path costs more than all else here
                children = file.read().split()
        except OSError:  # the system keeps no such list, or keeps it to itself
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
    """The parent of a process, 0 where it cannot be seen, and whether it lives."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - one read, of a file that is none
            state, parent, *_ = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return 0, False
    return int(parent), state not in b"ZX"


def ask_system(option: int, value: int = 0) -> int:
    """``prctl``, where there is one; what it answers, or -1."""
    import ctypes  # noqa: PLC0415 - of all that enqueue few run programs

    try:
        answer: int = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return -1
    return answer
