"""The one redis-server of a run: every contestant has a database of its own on it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.benchmarks.rivals.stores import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

STARTS_WITHIN = 10.0
PERSISTENCE = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "")


class RedisServer:
    """Started once, killed with the driver's other descendants."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as some:
            some.bind(("127.0.0.1", 0))
            self.port: int = some.getsockname()[1]
        program = shutil.which("redis-server") or shutil.which("valkey-server") or "redis-server"
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--databases", "32")
        self.process = subprocess.Popen(
            [program, *options, "--dir", str(folder), *PERSISTENCE], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + STARTS_WITHIN
        while not self._answers() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _answers(self) -> bool:
        import redis

        with contextlib.suppress(redis.RedisError), closing(redis.Redis(port=self.port)) as client:
            return bool(client.ping())
        return False


@cache
def server_in(folder: Path) -> RedisServer:
    """The server of this run."""
    return RedisServer(folder)


class RedisStore(Store):
    """A numbered database of the run's server; ``left`` of its contestants is a script."""

    _numbers: list[str] = []

    def __init__(self, folder: Path, label: str) -> None:
        server = server_in(folder)
        self._numbers.append(label)
        self.name = f"redis://127.0.0.1:{server.port}/{len(self._numbers)}"
        self.postmaster = server.process.pid
        self.alone = True

    def _connected(self) -> AbstractContextManager[Any]:
        import redis

        return closing(redis.Redis.from_url(self.name))

    @contextmanager
    def asking(self, script: str) -> Iterator[Callable[[], int]]:
        with self._connected() as client:
            yield lambda: int(client.eval(script, 0))

    def empty(self) -> None:
        with self._connected() as client:
            client.flushdb()

    def rest(self) -> None:
        """It has nothing to do that it puts off."""


def conditions_of(folder: Path) -> str:
    """What the server says of itself."""
    import redis

    with closing(redis.Redis(port=server_in(folder).port)) as client:
        told: Any = client.info()
    words = ("redis_version", "aof_enabled", "maxmemory_policy", "mem_allocator")
    return ", ".join(f"{word} = {told[word]}" for word in words) + f", {' '.join(PERSISTENCE)}"
