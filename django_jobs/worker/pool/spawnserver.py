"""Children that are started afresh, where forking this process is not safe.

A copy of a process with threads, or of one that system libraries of macOS have been used
in, may hang or crash. Then the nursery is a new Python, which loads no settings and no
app, so that nothing can start a thread in it; and it does not fork either, but starts a
new Python for each child, which sets Django up for itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings as django_settings

from django_jobs import stray_processes
from django_jobs.worker.pool.forkserver import (
    STOP_SIGNALS,
    Nursery,
    leave_signals_to_parent,
    live,
    serve,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.worker.pool.shared_memory import Places

QUICK_SECONDS = 60.0  # setting up a large project takes a while, and may fail at its end
_FORKS_SAFELY = ("linux", "freebsd")
_CODE = """
import json, sys
told = json.loads(sys.argv[1])
sys.path[:] = told["path"]
from django_jobs.worker.pool import spawnserver
spawnserver.{main}(told)
"""


def is_needed() -> bool:
    """Whether children cannot be forked here."""
    return not sys.platform.startswith(_FORKS_SAFELY) or threading.active_count() > 1


def why_not() -> str:
    """Why children cannot be started afresh; empty where they can."""
    if not hasattr(os, "posix_spawn"):
        return f"a worker on {sys.platform} has no children"
    if not hasattr(os, "waitid"):
        return f"on {sys.platform} a worker has children from Python 3.13 on"
    if not getattr(django_settings, "SETTINGS_MODULE", None):
        return "the settings are in no module, so that no other process could read them"
    return ""


def nursery_afresh(backend: str, places: Places, memory: int) -> Nursery:
    """A nursery that is a new process, and starts new ones."""
    ours, theirs = socket.socketpair()
    told = {
        "path": sys.path,
        "backend": backend,
        "places": [places.processes, places.concurrency, places.cron],
        "socket": theirs.fileno(),
        "memory": memory,
        "kept_to_itself": stray_processes.is_kept_to_itself(),
    }
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": django_settings.SETTINGS_MODULE}
    sys.stdout.flush()
    sys.stderr.flush()
    with theirs, _held_back():
        process = subprocess.Popen(  # noqa: S603 - ourselves
            _command("nursery_main", told),
            env=environment,
            pass_fds=(theirs.fileno(), memory),
            start_new_session=True,
        )
    return Nursery(ours, memory, process.wait, quick_seconds=QUICK_SECONDS)


def nursery_main(told: dict[str, Any]) -> None:
    """What the new nursery does."""
    _begin(told)
    sock = socket.socket(fileno=told["socket"])
    sock.set_inheritable(False)
    os.set_inheritable(told["memory"], True)  # noqa: FBT003 - its only way to say so

    def bear(descriptor: int, slot: int, _let_go: Callable[[], None]) -> int:
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - as above
        order = {**told, "socket": descriptor, "slot": slot, "parent": os.getpid()}
        command = _command("child_main", order)
        return os.posix_spawn(command[0], command, os.environ, setsigmask=STOP_SIGNALS)

    serve(sock, bear)


def child_main(told: dict[str, Any]) -> None:
    """What a new child does."""
    _begin(told)
    leave_signals_to_parent()
    for descriptor in (told["socket"], told["memory"]):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - as above

    def main(sock: socket.socket, slot: int, memory: int) -> None:
        django.setup()
        # Only now may anything be imported that knows models.
        from django_jobs.backends.registry import backends  # noqa: PLC0415 - as said
        from django_jobs.conf import get_settings  # noqa: PLC0415 - as said
        from django_jobs.worker.build import build_executor  # noqa: PLC0415 - as said
        from django_jobs.worker.pool import child  # noqa: PLC0415 - as said
        from django_jobs.worker.pool.shared_memory import Places  # noqa: PLC0415 - as said

        settings, backend = get_settings(), backends[told["backend"]]
        places = Places(*told["places"])
        run = child.child_main(
            lambda: build_executor(backend, settings), settings.kill_grace, places
        )
        run(sock, slot, memory)

    live(told["socket"], told["slot"], main, told["memory"], parent=told["parent"])


def _begin(told: dict[str, Any]) -> None:
    """What a fork would have inherited."""
    if told["kept_to_itself"]:
        stray_processes.keep_to_itself()


def _command(main: str, told: dict[str, Any]) -> list[str]:
    flags = [f"-W{option}" for option in sys.warnoptions]
    return [sys.executable, *flags, "-c", _CODE.format(main=main), json.dumps(told)]


@contextmanager
def _held_back() -> Iterator[None]:
    """A new process begins with signals held back, until it has said what they mean to it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
