"""A process between a worker's child and a program: starts the program and ends all it started.

It runs as a separate script that imports nothing of the package: a process that may have threads
must not run Python between fork and exec, and that is where limits have to be set.

The process reads what to start from the socket whose number is its argument, and writes the
outcome to it. When the other end is closed, for whatever reason, it kills everything. Processes
that the program leaves behind become children of this process (on Linux) and are killed too, even
in sessions of their own. The exit code is 0 if none of them is left. A program may kill or stop
this process, but it cannot read its memory, or remove the mark by which the worker then finds
what is left.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
SWEEP_SECONDS = 3.0
_RESTORED = ("SIGPIPE", "SIGXFSZ", "SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD", "SIGUSR1")
_LIMITS = {
    "cpu_seconds": "RLIMIT_CPU",
    "memory_bytes": "RLIMIT_AS",
    "file_bytes": "RLIMIT_FSIZE",
    "open_files": "RLIMIT_NOFILE",
    "processes": "RLIMIT_NPROC",
    "core_bytes": "RLIMIT_CORE",
}


class Launcher:
    """One program and everything it starts."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        # Without a buffer: data that was read ahead would not wake select().
        self._orders = control.makefile("rb", buffering=0)
        self._woken, wakes = socket.socketpair()
        self._wakes = wakes
        wakes.setblocking(False)  # noqa: FBT003 - positional only
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        for name in ("SIGCHLD", "SIGTERM", "SIGINT", "SIGHUP"):
            # Only the other end decides when to stop. A handler, because exec keeps SIG_IGN.
            signal.signal(getattr(signal, name), lambda *_: None)
        signal.signal(signal.SIGUSR1, lambda *_: self._give_up())
        self._pid = 0
        self._kill_at: float | None = None
        self._abandoned = False

    def run(self) -> bool:
        """Run the program to its end; returns whether none of its processes is left."""
        line = self._orders.readline()
        if not line:
            return True
        order = json.loads(line)
        _mark(order["marks"], "launcher")
        outcome = self._started(order)
        if outcome is None:
            outcome = _ending(self._watched())
        all_gone = self._sweep()
        if not self._abandoned:
            with suppress(OSError):
                self._control.sendall(json.dumps(outcome).encode())
        return all_gone

    def _started(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """Start the program; returns the error, if any."""
        read_end, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _become(order, write_end)
        os.close(write_end)
        with open(read_end, "rb") as error_pipe:  # noqa: PTH123 - a descriptor
            error = error_pipe.read().decode("utf-8", "replace")
        return {"error": error} if error else None

    def _watched(self) -> int:
        """Wait until the program has ended or was killed; returns its wait status."""
        while True:
            kill_at = self._kill_at
            timeout = None if kill_at is None else max(kill_at - time.monotonic(), 0)
            watched = [self._woken] if self._abandoned else [self._woken, self._control]
            readable, _, _ = select.select(watched, [], [], timeout)
            if self._control in readable:
                self._obey()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill_at = None
                _signal_group(self._pid, signal.SIGKILL)
            if self._woken in readable:
                self._woken.recv(4096)
                status = self._reaped()
                if status is not None:
                    return status

    def _obey(self) -> None:
        order = self._orders.readline()
        if order:
            self._kill_at = time.monotonic() + float(order)
            _signal_group(self._pid, signal.SIGTERM)
        else:
            self._give_up()

    def _give_up(self) -> None:
        self._abandoned, self._kill_at = True, time.monotonic()

    def _reaped(self) -> int | None:
        status = None
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    status = ended[1]
        return status

    def _sweep(self) -> bool:
        """Kill what is left. Children of a killed process become ours, and are killed next."""
        _signal_group(self._pid, signal.SIGKILL)
        until = time.monotonic() + SWEEP_SECONDS
        while time.monotonic() < until:
            for pid in _children():
                with suppress(OSError):
                    _signal_group(os.getpgid(pid), signal.SIGKILL)
                    os.kill(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return True
            select.select([self._woken], [], [], 0.01)
            with suppress(BlockingIOError):
                self._woken.recv(4096, socket.MSG_DONTWAIT)
        return False


def _become(order: dict[str, Any], write_end: int) -> NoReturn:
    try:
        os.setsid()
        _mark(order["marks"], "program")
        _ask_system(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for name in _RESTORED:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.umask(0o077)
        os.chdir(order["directory"])
        _limit(order["limits"])
        os.execve(order["path"], order["argv"], order["environment"])  # noqa: S606 - without a shell on purpose
    except BaseException as error:  # noqa: BLE001 - this process ends; the parent gets the error
        os.write(write_end, str(error).encode("utf-8", "replace")[:2000] or b"it cannot be started")
    finally:
        os._exit(127)


def _limit(limits: dict[str, int | None]) -> None:
    for name, wanted in limits.items():
        which = getattr(resource, _LIMITS[name], None)
        if wanted is None or which is None:
            continue
        _, hard = resource.getrlimit(which)
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # SIGXCPU comes at the soft limit, SIGKILL at the hard one.
        final = allowed + (name == "cpu_seconds" and allowed != hard)
        resource.setrlimit(which, (allowed, final))


def _mark(marks: dict[str, int], what: str) -> None:
    """Lower the limit that serves as the mark, where the system has it."""
    if marks:
        with suppress(OSError, ValueError):
            resource.setrlimit(marks["limit"], (marks[what], marks[what]))


def _signal_group(group: int, number: int) -> None:
    if group != os.getpgrp():
        with suppress(OSError):
            os.killpg(group, number)


def _children() -> list[int]:
    try:
        with open("/proc/thread-self/children", encoding="ascii") as file:  # noqa: PTH123 - pathlib takes long to import
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _ending(status: int) -> dict[str, Any]:
    code = os.waitstatus_to_exitcode(status)
    return {"signal": -code} if code < 0 else {"exit": code}


def _ask_system(option: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
    _ask_system(_PR_SET_DUMPABLE, 0)  # an order may hold secrets
    control = socket.socket(fileno=int(sys.argv[1]))
    # The default timeout of the process that made it may have left it non-blocking.
    control.settimeout(None)
    control.set_inheritable(False)
    launcher = Launcher(control)
    _ask_system(_PR_SET_CHILD_SUBREAPER, 1)
    _ask_system(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    if not launcher.run():
        sys.exit(1)


if __name__ == "__main__":
    main()
