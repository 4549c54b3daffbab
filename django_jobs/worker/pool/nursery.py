"""Where children are born: a process with one thread, no connection and no event loop.

It is forked from the parent before the parent has any of these, and forks children, the
first ones and their replacements alike, when the parent asks. It tells the parent how
each of them ended. When the parent is gone so is the nursery, and with it the children.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

from django_jobs.worker.pool.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    ChildMain = Callable[[socket.socket, int, int], None]

_PR_SET_PDEATHSIG = 1
_SLOT_BYTES = 2


class Nursery:
    """The parent's end: asks for children and hears of their ends."""

    def __init__(self, child_main: ChildMain, memory: int) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _nursery_main(theirs, child_main, memory)
        theirs.close()
        self._sock = ours
        self._channel = Channel(ours)
        self._early: list[tuple[int, int]] = []

    def spawn(self, slot: int) -> tuple[int, Channel]:
        """A new child for a slot: its pid, and the way to talk to it."""
        ours, theirs = socket.socketpair()
        descriptors = array.array("i", [theirs.fileno()])
        self._sock.sendmsg(
            [slot.to_bytes(_SLOT_BYTES, "little")],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)],
        )
        theirs.close()
        pid = None
        while pid is None:
            frame = self._channel.receive()
            if frame[0] == "born":
                pid = frame[1]
            else:
                self._early.append((frame[1], frame[2]))
        return pid, Channel(ours)

    def ends(self) -> list[tuple[int, int]]:
        """Children that ended: pid and wait status. To be called when there is news."""
        frames = self._channel.receive_ready()
        return self.heard() + [(frame[1], frame[2]) for frame in frames if frame[0] == "ended"]

    def heard(self) -> list[tuple[int, int]]:
        """Ends that were told while a child was being born."""
        early, self._early = self._early, []
        return early

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        """Let the nursery end, and every child with it."""
        self._sock.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _nursery_main(sock: socket.socket, child_main: ChildMain, memory: int) -> NoReturn:
    code = 1
    try:
        # A session of its own: a Ctrl-C at the terminal is for the parent alone.
        os.setsid()
        die_with_parent()
        gc.freeze()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _serve(sock, child_main, memory)
        code = 0
    finally:
        os._exit(code)


def _serve(sock: socket.socket, child_main: ChildMain, memory: int) -> None:
    channel = Channel(sock)
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    while True:
        readable, _, _ = select.select([sock, woken], [], [])
        if woken in readable:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
            for pid, status in _reaped():
                channel.send(("ended", pid, status))
        if sock in readable:
            request = _request(sock)
            if request is None:
                return
            slot, descriptor = request
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for end in (sock, woken, wakes):
                    end.close()
                _child(descriptor, slot, child_main, memory)
            os.close(descriptor)
            channel.send(("born", pid))


def _request(sock: socket.socket) -> tuple[int, int] | None:
    """The slot and the descriptor of a wished-for child; None when the parent is gone."""
    data, ancillary, _, _ = sock.recvmsg(_SLOT_BYTES, socket.CMSG_SPACE(4))
    if not data:
        return None
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return int.from_bytes(data, "little"), descriptors[0]


def _reaped() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _child(descriptor: int, slot: int, child_main: ChildMain, memory: int) -> NoReturn:
    code = 1
    try:
        os.setsid()  # a process group of its own, to be killed whole
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        child_main(socket.socket(fileno=descriptor), slot, memory)
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die_with_parent() -> None:
    """Ask the system to kill this process when its parent ends, where it can be asked."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended meanwhile
        os._exit(1)
