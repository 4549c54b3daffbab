"""Run one program from its start to its end, in the worker's child.

The output is read as it comes, so that the pipe never fills up, and passed on to ``sys.stdout``
and ``sys.stderr``, where the attempt's output is captured. An alarm may interrupt this code at any
point: closing the socket to the launcher kills everything. If the program has killed or stopped
the launcher, this module kills the rest itself.
"""

from __future__ import annotations

import codecs
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

from django_jobs.handlers.base import JobTimeout
from django_jobs.handlers.shell import stray_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from django_jobs.conf import ShellConfig

CHUNK = 1 << 16
TAIL = 2000
LOOK_SECONDS = 0.5
LEAVE_SECONDS = 1.0
"""A launcher still running after this time is killed."""
LATE_SECONDS = 0.2
"""Leaves the timeout to the alarm of the attempt, which is exact, where there is one."""

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_PYTHON = ("-I", "-S", "-B", "-X", "utf8")
_OF_PYTHON = ("LD_LIBRARY_PATH",)  # it may need that to find itself


@dataclass(frozen=True, slots=True)
class Order:
    """The program to start, and how long it may run."""

    path: str
    argv: Sequence[str]
    surroundings: ShellConfig
    timeout: float | None = None
    ends_at: float | None = None
    """When the timeout ends, on the monotonic clock."""
    grace: float = 1.0

    def text(self) -> bytes:
        order = {
            "path": self.path,
            "argv": list(self.argv),
            "directory": self.surroundings.directory,
            "environment": environment(self.surroundings, os.environ),
            "limits": {name: getattr(self.surroundings, name) for name in LIMITS},
            "marks": MARKS if stray_processes.HAS_MARKS else {},
        }
        return json.dumps(order).encode() + b"\n"


LIMITS = (
    "cpu_seconds",
    "memory_bytes",
    "file_bytes",
    "open_files",
    "processes",
    "core_bytes",
)

MARKS = {
    "limit": stray_processes.RLIMIT_LOCKS,
    "launcher": stray_processes.LAUNCHER,
    "program": stray_processes.PROGRAM,
}


def environment(surroundings: ShellConfig, mine: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program."""
    passed_on = {name: mine[name] for name in surroundings.environment if name in mine}
    return {"PATH": ":".join(surroundings.path), "LANG": "C.UTF-8", **passed_on}


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """How a program ended, and the end of its standard error."""

    exit: int | None = None
    signal: int | None = None
    error: str = ""
    tail: str = ""


class _Stream:
    """An output stream of a program, passed on as text; the end is kept."""

    def __init__(self, source: IO[bytes], target: Callable[[], TextIO]) -> None:
        self.source = source
        self.tail = ""
        self._target = target
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def pass_on(self) -> bool:
        """Read once; False at the end."""
        data = os.read(self.source.fileno(), CHUNK)
        text = self._decode(data, final=not data)
        if text:
            self._target().write(text)
            self.tail = (self.tail + text[-TAIL:])[-TAIL:]
        return bool(data)

    def pass_on_rest(self) -> None:
        """Read what is there without waiting: a process that survived may hold the other end."""
        os.set_blocking(self.source.fileno(), False)
        with suppress(BlockingIOError):
            while self.pass_on():
                pass


class ProgramRun:
    """A running program."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._answer = b""

    def to_its_end(self) -> ProgramEnded:
        """Wait for the program; JobTimeout, or any other exception meanwhile, ends it first."""
        with ExitStack() as stack:
            stack.enter_context(stray_processes.dumps_forbidden())
            ours, theirs = socket.socketpair()
            ours.settimeout(None)
            self._control = stack.enter_context(ours)
            with theirs:
                launcher = stack.enter_context(_launched(theirs))
            # Entered again so that it is closed first: the launcher does not end while it is open.
            stack.enter_context(self._control)
            self._out = _Stream(_pipe(launcher.stdout), lambda: sys.stdout)
            self._err = _Stream(_pipe(launcher.stderr), lambda: sys.stderr)
            try:
                with suppress(ConnectionError):  # the launcher is gone, with no reason sent
                    self._control.sendall(self._order.text())
                self._read_until(self._order.ends_at)
            except JobTimeout:
                self._stop()
                raise
            return self._ended()

    def _read_until(self, moment: float | None) -> None:
        """Pass output on until the launcher is done or gone; raises JobTimeout after ``moment``."""
        with selectors.DefaultSelector() as selector:
            for stream in (self._out, self._err):
                selector.register(stream.source, selectors.EVENT_READ, stream)
            selector.register(self._control, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(LOOK_SECONDS if moment else None):
                    if key.data is None:
                        if not self._receive_answer():
                            return
                    elif not key.data.pass_on():
                        selector.unregister(key.fileobj)
                if moment is not None and time.monotonic() > moment + LATE_SECONDS:
                    raise JobTimeout(self._order.timeout or 0.0)

    def _receive_answer(self) -> bool:
        try:
            data = self._control.recv(CHUNK)
        except ConnectionError:
            return False
        self._answer += data
        return bool(data)

    def _stop(self) -> None:
        """Ask the program to end, and kill it after the grace period."""
        grace = self._order.grace
        try:
            self._control.sendall(f"{grace}\n".encode())
            self._read_until(time.monotonic() + grace)
        except (JobTimeout, OSError):
            pass  # closing the socket kills it
        for stream in (self._out, self._err):
            stream.pass_on_rest()

    def _ended(self) -> ProgramEnded:
        for stream in (self._out, self._err):
            stream.pass_on_rest()
        try:
            answer: dict[str, Any] = json.loads(self._answer)
        except ValueError:  # nothing, or half of it
            answer = {"error": "its launcher ended before it did"}
        return ProgramEnded(**answer, tail=self._err.tail)


@contextmanager
def _launched(control: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    number = control.fileno()
    launcher = subprocess.Popen(  # noqa: S603 - our own script; what it starts was looked up in the allow-list
        [sys.executable, *_PYTHON, _LAUNCHER, str(number)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[number],
        env={name: os.environ[name] for name in _OF_PYTHON if name in os.environ},
        start_new_session=True,
    )
    try:
        yield launcher
    finally:
        try:
            _end_launcher(launcher)
        except BaseException:  # an alarm; the next one comes only after a while
            _end_launcher(launcher)
            raise


def _end_launcher(launcher: subprocess.Popen[bytes]) -> None:
    """Wait for the launcher to end, or kill it; then kill what it has left running."""
    _pipe(launcher.stdout).close()
    _pipe(launcher.stderr).close()
    try:
        launcher.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()
    if launcher.returncode:
        stray_processes.end_strays()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the launcher has no pipe")
    return pipe
