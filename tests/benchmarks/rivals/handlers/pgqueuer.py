"""For pgqueuer: the factory that its command runs."""

import json

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from tests.benchmarks.rivals.marks import mark


async def main() -> PgQueuer:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect()))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        mark(json.loads(job.payload)["n"])

    return queuer
