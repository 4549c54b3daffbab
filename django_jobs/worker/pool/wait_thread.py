"""The wait thread: waits at the store for new work, and hints so to the get thread.

It holds no lease and changes nothing. So it may hang, or end with the process in the middle of
a wait, and only time is lost: the get thread trusts it no longer than a wait may take, and then
looks by itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_jobs.backends.base import LooksAhead, stop_waiting, wait_for_work
from django_jobs.worker.store import Restraint, close_idle_connections

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Backend
    from django_jobs.worker.queues import QueueOrder

CONNECT_SECONDS = 4
"""A worker is to go on within 5 seconds of an outage; an attempt may have begun just before."""


def cut_connection(connection: Any) -> None:
    """Shut down the socket below a Django connection, if it has one, without waiting.

    Drivers wait without limit for the answer of a frozen server or over a network that drops
    packets. When another thread shuts the socket down, the driver raises at once.
    """
    driver: Any = getattr(connection, "connection", None)
    with contextlib.suppress(Exception):  # it may be closed at this very moment
        end: Any = driver if hasattr(driver, "fileno") else driver._sock  # noqa: SLF001 - PyMySQL has no public way
        descriptor = end.fileno()
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def limit_connecting(alias: str | None, seconds: float) -> None:
    """Limit the time of each attempt to connect, in this process.

    During an attempt there is no connection to cut yet. PyMySQL waits without limit for the
    server's greeting and for the answers to its first statements.
    """
    if alias is None:
        return
    options = connections[alias].settings_dict.setdefault("OPTIONS", {})
    limits = {"connect_timeout": max(2, int(min(seconds, CONNECT_SECONDS)))}
    if connections[alias].vendor == "mysql":
        longest = max(2, int(seconds))
        limits |= {"read_timeout": longest, "write_timeout": longest}
    elif connections[alias].vendor != "postgresql":
        return
    for name, limit in limits.items():
        options.setdefault(name, limit)


GRACE_SECONDS = 1.0
PARKED_SECONDS = 10.0
END_PATIENCE = 0.3


class Waiter:
    """Calls ``hint`` when there may be work, once each time it is armed."""

    def __init__(
        self,
        backend: Backend,
        queues: QueueOrder,
        poll_interval: float,
        hint: Callable[[], None],
    ) -> None:
        self.trusted_until = 0.0
        self._backend = backend
        self._queues = queues
        self._poll_interval = poll_interval
        self._hint = hint
        self._armed = threading.Event()
        self._ended = threading.Event()
        self._restraint = Restraint(poll_interval)
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="django_jobs-waiter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def arm(self) -> None:
        """Start waiting for work: there is none now."""
        self.trusted_until = time.monotonic() + self._poll_interval + GRACE_SECONDS
        self._armed.set()

    def disarm(self) -> None:
        """Stop hinting: there is enough work."""
        self._armed.clear()
        self._restraint.end()

    def cut_if_hung(self) -> None:
        """Break a wait that did not return in time; the thread waits again."""
        if self._armed.is_set() and time.monotonic() > self.trusted_until:
            cut_connection(self._connection)

    def end(self) -> None:
        """Stop waiting. A wait that hangs is left to end with the process."""
        self._ended.set()
        self._armed.set()
        with contextlib.suppress(Exception):  # whatever a backend may raise: the worker ends
            stop_waiting(self._backend)

    def join(self) -> None:
        """Let it close its connections, if it does not take long."""
        self._thread.join(END_PATIENCE)

    def _run(self) -> None:
        database = self._backend.home
        self._connection = connections[database] if database else None
        try:
            while not self._ended.is_set():
                if not self._armed.wait(PARKED_SECONDS):
                    # Nothing reads notifications while it is parked: unsubscribe.
                    stop_waiting(self._backend)
                    self._armed.wait()
                if not self._ended.is_set():
                    self._wait()
        finally:
            connections.close_all()

    def _wait(self) -> None:
        began = time.monotonic()
        try:
            seconds = self._poll_interval
            if isinstance(self._backend, LooksAhead):
                seconds = self._backend.look_every(seconds)
            self.trusted_until = began + seconds + GRACE_SECONDS
            if not wait_for_work(self._backend, self._queues.watched, seconds):
                return
        except Exception:  # noqa: BLE001 - the get thread meets the same error, and reports it
            close_idle_connections()
        self._ended.wait(self._restraint.pause_after(time.monotonic() - began))
        self._armed.clear()
        self._hint()
