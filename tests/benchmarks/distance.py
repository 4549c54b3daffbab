"""A database server that is some milliseconds away: a proxy between it and the worker.

python -m tests.benchmarks.distance HOST PORT MILLISECONDS prints the port it listens on.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 16


@contextmanager
def away(milliseconds: float) -> Iterator[None]:
    """Processes that are started meanwhile get every answer so much later."""
    if not milliseconds:
        yield
        return
    from testproject.databases import server_details

    choice = os.environ["DJANGO_JOBS_TEST_DB"]
    server, variable = server_details(choice), f"DJANGO_JOBS_{choice.upper()}_PORT"
    target = [server["HOST"], server["PORT"], str(milliseconds)]
    command = [sys.executable, "-m", __name__, *target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        os.environ[variable] = proxy.stdout.readline().strip()
        try:
            yield
        finally:
            os.environ[variable] = server["PORT"]
            proxy.kill()


async def forward(source: asyncio.StreamReader, to: asyncio.StreamWriter, seconds: float) -> None:
    """Pass on what comes, each piece so much later, and the end after it."""
    loop = asyncio.get_running_loop()
    while data := await source.read(CHUNK):
        loop.call_later(seconds, to.write, data)
    await asyncio.sleep(seconds)
    to.close()


async def serve(host: str, port: int, round_trip: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, port)
        for end in (writer, back):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ways = forward(reader, back, round_trip / 2), forward(there, writer, round_trip / 2)
        await asyncio.gather(*ways, return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000))
