"""The spawn server: starts children as new Pythons, where forking this process is not safe.

A fork of a process that has threads, or that has used system libraries of macOS, may hang or
crash. Then the fork server is a new Python that loads no settings and no app, so that nothing
can start a thread in it. It does not fork either, but starts a new Python for each child, which
sets up Django by itself.
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

from django_jobs.handlers.shell import stray_processes
from django_jobs.worker.pool.forkserver import (
    STOP_SIGNALS,
    ForkServer,
    leave_signals_to_parent,
    run_child,
    serve,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.worker.pool.shared_memory import Places

QUICK_SECONDS = 60.0  # setting up a large project takes a while, and may fail at its end
_FORKS_SAFELY = ("linux", "freebsd")
_CODE = """
import json, sys
config = json.loads(sys.argv[1])
sys.path[:] = config["path"]
from django_jobs.worker.pool import spawnserver
spawnserver.{main}(config)
"""


def is_needed() -> bool:
    """Whether children cannot be forked here."""
    return not sys.platform.startswith(_FORKS_SAFELY) or threading.active_count() > 1


def why_not() -> str:
    """Why children cannot be spawned here; empty if they can."""
    if not hasattr(os, "posix_spawn"):
        return f"a worker on {sys.platform} has no children"
    if not hasattr(os, "waitid"):
        return f"on {sys.platform} a worker has children from Python 3.13 on"
    if not getattr(django_settings, "SETTINGS_MODULE", None):
        return "the settings are in no module, so that no other process could read them"
    return ""


def start_spawn_server(backend: str, places: Places, memory: int) -> ForkServer:
    """Start a spawn server as a new Python."""
    ours, theirs = socket.socketpair()
    config = {
        "path": sys.path,
        "backend": backend,
        "places": [places.processes, places.concurrency, places.cron],
        "socket": theirs.fileno(),
        "memory": memory,
        "dumps_forbidden": stray_processes.forbids_dumps(),
    }
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": django_settings.SETTINGS_MODULE}
    sys.stdout.flush()
    sys.stderr.flush()
    with theirs, _signals_blocked():
        process = subprocess.Popen(  # noqa: S603 - ourselves
            _command("server_main", config),
            env=environment,
            pass_fds=(theirs.fileno(), memory),
            start_new_session=True,
        )
    return ForkServer(ours, memory, process.wait, quick_seconds=QUICK_SECONDS)


def server_main(config: dict[str, Any]) -> None:
    """Run the spawn server: the main function of its new Python."""
    _inherit(config)
    sock = socket.socket(fileno=config["socket"])
    sock.set_inheritable(False)
    os.set_inheritable(config["memory"], True)  # noqa: FBT003 - its only way to say so

    def start_child(descriptor: int, slot: int, _close_own: Callable[[], None]) -> int:
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - as above
        child = {**config, "socket": descriptor, "slot": slot, "parent": os.getpid()}
        command = _command("child_main", child)
        return os.posix_spawn(command[0], command, os.environ, setsigmask=STOP_SIGNALS)

    serve(sock, start_child)


def child_main(config: dict[str, Any]) -> None:
    """Run a child: the main function of its new Python."""
    _inherit(config)
    leave_signals_to_parent()
    for descriptor in (config["socket"], config["memory"]):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - as above

    def main(sock: socket.socket, slot: int, memory: int) -> None:
        django.setup()
        # Modules that import models can be imported only now.
        from django_jobs.backends.registry import backends  # noqa: PLC0415 - as above
        from django_jobs.conf import get_settings  # noqa: PLC0415 - as above
        from django_jobs.handlers.registry import registry  # noqa: PLC0415 - as above
        from django_jobs.worker.build import build_executor  # noqa: PLC0415 - as above
        from django_jobs.worker.pool import child  # noqa: PLC0415 - as above
        from django_jobs.worker.pool.shared_memory import Places  # noqa: PLC0415 - as above

        registry.load()  # a fork would have inherited them; no job is to wait for an import
        settings, backend = get_settings(), backends[config["backend"]]
        places = Places(*config["places"])
        run = child.child_main(
            lambda: build_executor(backend, settings), settings.kill_grace, places
        )
        run(sock, slot, memory)

    run_child(config["socket"], config["slot"], main, config["memory"], parent=config["parent"])


def _inherit(config: dict[str, Any]) -> None:
    """Set the state that a fork would have inherited."""
    if config["dumps_forbidden"]:
        stray_processes.forbid_dumps()


def _command(main: str, config: dict[str, Any]) -> list[str]:
    flags = [f"-W{option}" for option in sys.warnoptions]
    return [sys.executable, *flags, "-c", _CODE.format(main=main), json.dumps(config)]


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals while a process is started; it unblocks them when its handlers are set."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
