"""Waiting for work: asleep until a job is due or something tells that one may be.

Each thread that waits has a ``Watch`` of its own. Between looks it sleeps on what its
database offers: notifications on PostgreSQL, the counter of changes on SQLite, the clock
on MariaDB and MySQL. All of them are hints; what is due, a look tells.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.backends.database.changes import Changes, can_see_others
from django_jobs.backends.database.listening import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.database.glance import Glance

SURE_FACTOR = 2.0
"""Who is told of new jobs looks by itself so much less often."""

# Hints come at most so often (see hints.py): the job that follows one closely has none of
# its own. So a hint is followed by looks, in pauses that begin above that and grow.
FIRST_LOOK_AFTER_HINT = 0.03
LOOKS_GROW = 3.0
STOP_PATIENCE = 0.2


class Watch:
    """One thread's waiting on one backend's queues."""

    def __init__(
        self,
        database: str,
        backend: str,
        look: Callable[[Sequence[str] | None], Glance],
        *,
        hints: bool,
    ) -> None:
        self.stopped = False
        self._look = look
        self._alarm, self._bell = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._waits = threading.Lock()
        self._look_in: float | None = None
        connection = connections[database]
        wants = hints and not connection.in_atomic_block
        self._listener = None
        self._changes = None
        if connection.vendor == "postgresql" and wants:
            self._listener = Listener(connection, self._selector, backend)
        elif connection.vendor == "sqlite" and can_see_others(connection):
            self._changes = Changes(connection)
        # Also when a thread ends, or a test, without a word.
        ends = (self._selector, self._alarm, self._bell)
        self._close = weakref.finalize(self, _close, self._listener, *ends)

    def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        """Whether there may be work; False when the time is over and none was seen."""
        with self._waits:
            try:
                return self._until_work(queues, time.monotonic() + timeout)
            finally:
                if self.stopped:
                    self._close()

    def _until_work(self, queues: Sequence[str] | None, deadline: float) -> bool:
        while not self.stopped:
            if self._changes is not None:
                self._changes.begin()
            seen = self._look(queues)
            if seen.due_in == 0.0:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._listener is not None and self._listener.begins():
                # Nobody told what came before it listened, and it may have missed a hint
                # for which the next ones were left out.
                self._look_in = FIRST_LOOK_AFTER_HINT
                continue
            pause = self._pause(left, seen.due_in)
            if self._sleep(queues, pause):
                self._look_in = FIRST_LOOK_AFTER_HINT
                return True
            if pause == left and time.monotonic() >= deadline:
                return False  # the next wait begins with a look
        return False

    def _pause(self, left: float, due_in: float | None) -> float:
        pauses = [left]
        if due_in is not None:
            pauses.append(due_in)
        if self._listener is not None:
            pauses.append(self._listener.tries_in())
        if self._look_in is not None:
            pauses.append(self._look_in)
            self._look_in = self._look_in * LOOKS_GROW if self._look_in < left else None
        return min(pauses)

    def _sleep(self, queues: Sequence[str] | None, seconds: float) -> bool:
        """Whether a hint came. It may end before its time for other reasons."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.stopped:
            if self._changes is not None:
                left = min(left, self._changes.every)
            rung = self._selector.select(left)
            if self._listener is not None and rung:
                if self._listener.heard(queues):
                    return True
                if not self._listener.listens:
                    return False
            if self._changes is not None and self._changes.seen():
                return False
        return False

    @property
    def is_told(self) -> bool:
        """Whether new jobs wake this thread."""
        return self._listener is not None and self._listener.listens

    def stop(self) -> None:
        """Let a wait that is under way end, and close what waiting holds. For any thread."""
        self.stopped = True
        with contextlib.suppress(OSError):  # closed just now
            self._bell.send(b"!")
        if self._waits.acquire(timeout=STOP_PATIENCE):  # else it hangs, and ends with its process
            self._close()
            self._waits.release()


def _close(listener: Listener | None, *ends: selectors.BaseSelector | socket.socket) -> None:
    if listener is not None:
        listener.close()
    for end in ends:
        end.close()


class Watches:
    """The watches of a backend's threads."""

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._all: weakref.WeakSet[Watch] = weakref.WeakSet()

    def mine(self) -> Watch | None:
        """The watch of the calling thread, which may be stopped."""
        watch: Watch | None = getattr(self._of_thread, "watch", None)
        return watch

    def keep(self, watch: Watch) -> Watch:
        self._of_thread.watch = watch
        self._all.add(watch)
        return watch

    def drop(self, watch: Watch) -> None:
        """Forget a stopped watch of this thread."""
        self._of_thread.watch = None
        self._all.discard(watch)

    def stop(self) -> None:
        """Stop all of them."""
        for watch in list(self._all):
            watch.stop()
            self._all.discard(watch)
