"""Breaking a connection under a call that hangs, from another thread and without waiting.

Drivers have no time limit for an answer that does not come: a server that was frozen, a
network that swallows packets. When the socket is shut down the driver raises at once.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

from django.db import connections

CONNECT_SECONDS = 4
"""So that a worker goes on within 5 seconds: an attempt may have begun just too early."""


def cut_connection(connection: Any) -> None:
    """Shut the socket down below a Django connection, if it has one. May be called by anyone."""
    driver: Any = getattr(connection, "connection", None)
    with contextlib.suppress(Exception):  # it may be closed at this very moment
        end: Any = driver if hasattr(driver, "fileno") else driver._sock  # noqa: SLF001 - PyMySQL tells nobody
        descriptor = end.fileno()
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def limit_connecting(alias: str | None, seconds: float) -> None:
    """Let no attempt to connect last longer, in this process.

    While it connects there is no connection to cut. PyMySQL waits for a server's greeting
    and for the answers to its first statements as long as for any answer: without limit.
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
