"""The fork server: a process with one thread, no connection and no event loop.

The parent forks it before it has any of these itself. It forks children, the first ones and
their replacements, when the parent asks. It reports to the parent how each of them ended, and
kills what is left of their process groups and of the programs that their jobs ran. When the
parent ends, the fork server ends too, and with it the children.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from django_jobs.handlers.shell.stray_processes import (
    LAUNCHER,
    PAUSE_SECONDS,
    SWEEP_SECONDS,
    Sweep,
    ask_system,
    mark_of,
)
from django_jobs.telemetry.errors import cleaned
from django_jobs.worker.pool.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable

    ChildMain = Callable[[socket.socket, int, int], None]
    StartChild = Callable[[int, int, Callable[[], None]], int]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SLOT_BYTES = 2
_LEAVE = 0xFFFF
LEAVE_SECONDS = 4.0  # exit hooks get all but one second of it
QUICK_SECONDS = 5.0
STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Born(NamedTuple):
    """A process was started in a slot."""

    slot: int
    pid: int


class BirthFailed(NamedTuple):
    """No process could be started in a slot."""

    slot: int
    why: str


class ChildEnded(NamedTuple):
    """A process has ended, with this wait status."""

    pid: int
    status: int


News = Born | BirthFailed | ChildEnded
_NEWS: dict[str, type[News]] = {"born": Born, "failed": BirthFailed, "ended": ChildEnded}


class ForkServer:
    """The parent's end: requests processes and reads of their births and ends."""

    def __init__(
        self,
        sock: socket.socket,
        memory: int,
        wait: Callable[[], object],
        *,
        quick_seconds: float = QUICK_SECONDS,
    ) -> None:
        self.memory = memory
        self.quick_seconds = quick_seconds
        self._sock = sock
        self._wait = wait
        self._channel = Channel(sock)

    def request(self, slot: int) -> Channel:
        """Request a process; returns the channel to it. ``news`` brings its pid, or a failure."""
        ours, theirs = socket.socketpair()
        descriptors = array.array("i", [theirs.fileno()])
        try:
            channel = Channel.for_parent(ours)
            self._sock.sendmsg(
                [slot.to_bytes(_SLOT_BYTES, "little")],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)],
                socket.MSG_DONTWAIT,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return channel

    def news(self) -> list[News]:
        """Births, failures and ends, in their order; raises EOFError when the server is gone."""
        return [_NEWS[kind](*fields) for kind, *fields in self._channel.receive_ready()]

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        """Let the fork server end, when its children have ended or their time is over."""
        with contextlib.suppress(OSError):
            self._sock.send(_LEAVE.to_bytes(_SLOT_BYTES, "little"), socket.MSG_DONTWAIT)
        self._sock.close()
        with contextlib.suppress(ChildProcessError):
            self._wait()


def start_fork_server(child_main: ChildMain, memory: int) -> ForkServer:
    """Fork this process as a fork server, whose children are forks of itself."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        serve(theirs, lambda *request: _fork(child_main, memory, *request))
    theirs.close()
    return ForkServer(ours, memory, lambda: os.waitpid(pid, 0))


def _fork(
    child_main: ChildMain, memory: int, descriptor: int, slot: int, close_own: Callable[[], None]
) -> int:
    pid = os.fork()
    if pid == 0:
        close_own()
        _leave_objects_to_parent()
        run_child(descriptor, slot, child_main, memory)
    return pid


def _leave_objects_to_parent() -> None:
    """Disable the finalizers of objects that were copied from the parent.

    Otherwise the first child to end would remove the parent's temporary directories, and end its
    processes.
    """
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False
    if processes := sys.modules.get("multiprocessing.process"):
        vars(processes).get("_children", set()).clear()


def serve(sock: socket.socket, start_child: StartChild) -> NoReturn:
    """Run the fork server in this process.

    ``start_child`` gets the child's end of its channel, its slot, and a function that closes the
    server's own descriptors; it returns the pid.
    """
    code = 1
    try:
        # A session of its own: a Ctrl-C at the terminal is for the parent alone.
        if os.getsid(0) != os.getpid():
            os.setsid()
        # Processes that handlers leave behind are reaped here.
        ask_system(_PR_SET_CHILD_SUBREAPER, 1)
        _no_input()
        gc.freeze()
        leave_signals_to_parent()
        _Server(sock, start_child).serve()
        code = 0
    except BaseException as error:  # noqa: BLE001 - the end of a process; nothing is above
        traceback.print_exception(cleaned(error))
    finally:
        os._exit(code)


class _Server:
    """The fork server's own side."""

    def __init__(self, sock: socket.socket, start_child: StartChild) -> None:
        self._sock = sock
        self._channel = Channel(sock)
        self._start_child = start_child
        self._pids: set[int] = set()
        self._sweep: Sweep | None = None
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)  # noqa: FBT003 - its only way to say so

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        try:
            while self._turn():
                pass
        except OSError:  # the parent ended in the middle of a frame
            pass
        finally:
            self._end_all()

    def _end_all(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        until = time.monotonic() + SWEEP_SECONDS
        while (self._pids or self._sweep) and time.monotonic() < until:
            self._ended()
            self._end_strays()
            time.sleep(PAUSE_SECONDS)

    def _end_strays(self) -> None:
        """Go on to kill the orphans of a child or a launcher that failed, if there was one.

        A launcher may be among them. It would end by itself, unless its program has stopped it.
        """
        if self._sweep and not self._sweep.goes_on():
            self._sweep = None

    def _turn(self) -> bool:
        self._end_strays()
        timeout = self._sweep.pause if self._sweep else None
        readable, _, _ = select.select([self._sock, self._woken], [], [], timeout)
        if self._woken in readable:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            for pid, status in self._ended():
                self._channel.send(("ended", pid, status))
        return self._sock not in readable or self._answer()

    def _answer(self) -> bool:
        """Do what the parent asks; False if it is gone or asks to end."""
        data, descriptors, _, _ = socket.recv_fds(self._sock, _SLOT_BYTES, 1)
        if not data:
            return False
        slot = int.from_bytes(data, "little")
        if slot == _LEAVE:
            self._wait_for_children()
            return False
        try:
            pid = self._start_child(descriptors[0], slot, self._close_own)
        except OSError as error:
            os.close(descriptors[0])
            self._channel.send(("failed", slot, str(error)))
            return True
        os.close(descriptors[0])
        self._pids.add(pid)
        self._channel.send(("born", slot, pid))
        return True

    def _close_own(self) -> None:
        """Close the fork server's descriptors in a forked child."""
        signal.set_wakeup_fd(-1)
        for end in (self._sock, self._woken, self._wakes):
            end.close()

    def _wait_for_children(self) -> None:
        until = time.monotonic() + LEAVE_SECONDS
        while self._pids and (left := until - time.monotonic()) > 0:
            select.select([self._woken], [], [], left)
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            self._ended()

    def _ended(self) -> list[tuple[int, int]]:
        """Reap processes, and return the children among them with their status.

        A pid is not used again before it is reaped: until then its process group can be killed.
        """
        ended = []
        with contextlib.suppress(ChildProcessError):
            while exited := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = exited.si_pid
                if pid in self._pids:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)  # what its handlers started
                marked = mark_of(pid) <= LAUNCHER
                _, status = os.waitpid(pid, 0)
                if marked or (pid in self._pids and status):
                    self._sweep = Sweep({os.getpid()}, LAUNCHER)
                if pid in self._pids:
                    self._pids.discard(pid)
                    ended.append((pid, status))
        return ended


def run_child(
    descriptor: int, slot: int, child_main: ChildMain, memory: int, *, parent: int | None = None
) -> NoReturn:
    """Run a child in this process."""
    code = 1
    try:
        os.setsid()  # a process group of its own, to be killed whole
        die_with_parent(parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        child_main(socket.socket(fileno=descriptor), slot, memory)
        code = 0
    except BaseException as error:  # noqa: BLE001 - the end of a process; nothing is above
        traceback.print_exception(cleaned(error))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def die_with_parent(parent: int | None = None, number: int = signal.SIGKILL) -> None:
    """Have the system signal this process when its parent ends, where it supports that."""
    parent = os.getppid() if parent is None else parent
    ask_system(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it had ended before
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill a process and everything that it started."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def describe_exit(status: int) -> str:
    """A wait status in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"the process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the process was killed by {name}"


def leave_signals_to_parent() -> None:
    """Ignore stop signals, which may go to a whole control group: the parent decides what follows.

    By a handler, since programs that jobs start would inherit ignored signals.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, _wake_up)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _no_input() -> None:
    """Replace the standard input, so that handlers read nothing from the terminal."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _wake_up(_number: int, _frame: Any) -> None:
    """Only interrupt a wait: the parent decides what a signal means."""
