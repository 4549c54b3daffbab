"""For pgqueuer: the factory that its command runs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from tests.benchmarks.rivals.marks import mark


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    connection = await asyncpg.connect()  # libpq's variables say where
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        mark(json.loads(job.payload)["n"])

    yield queuer
    await connection.close()
