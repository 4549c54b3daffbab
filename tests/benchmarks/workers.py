"""Real ``jobs_work`` processes for measurements: their CPU, and their round trips.

Round trips are counted where they cannot be overlooked, on the wire: the worker connects
through a relay of ours, which counts how often a question follows an answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 20.0


class Relay:
    """Passes bytes between workers and a server, and counts round trips."""

    def __init__(self, host: str, port: int) -> None:
        self.round_trips = 0
        self.connections = 0
        self._server = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._server)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                asked = [False]
                for ends in ((client, server, True), (server, client, False)):
                    arguments = (*ends, asked)
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(
        self, source: socket.socket, target: socket.socket, asks: bool, asked: list[bool]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if asks and not asked[0]:
                    self.round_trips += 1
                asked[0] = asks
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


class Working:
    """A running worker."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def family(self) -> list[int]:
        """It and all that descends from it."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def cpu_seconds(self) -> float:
        """CPU time of all its processes together."""
        ticks = 0
        for pid in self.family():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def worker(
    *options: str, settings: dict[str, Any] | None = None, relay: Relay | None = None
) -> Iterator[Working]:
    """A worker on the throw-away database, ready for jobs; ended with a signal."""
    import json

    from django.db import connection

    choice = os.environ.get("DJANGO_JOBS_TEST_DB") or "sqlite"
    name = str(connection.settings_dict["NAME"])
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.benchmarks.site",
        "BENCH_JOBS": json.dumps(settings or {}),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    place = "SQLITE_PATH" if choice == "sqlite" else f"{choice.upper()}_NAME"
    environment[f"DJANGO_JOBS_{place}"] = name
    if relay is not None:
        environment[f"DJANGO_JOBS_{choice.upper()}_PORT"] = str(relay.port)
    with tempfile.NamedTemporaryFile("w", suffix=".log", delete=False) as log:
        process = subprocess.Popen(
            [sys.executable, "testproject/manage.py", "jobs_work", "-v0", *options],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    working = Working(process, Path(log.name))
    try:
        _until_there(process.pid)
        yield working
        assert process.poll() is None, working.log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        print(working.log.read_text(), end="", file=sys.stderr)
        working.log.unlink()


def _until_there(pid: int) -> None:
    from django_jobs.models import Worker

    deadline = time.monotonic() + PATIENCE_SECONDS
    while not Worker.objects.filter(pid=pid).exists():
        assert time.monotonic() < deadline, "the worker did not register"
        time.sleep(0.02)
