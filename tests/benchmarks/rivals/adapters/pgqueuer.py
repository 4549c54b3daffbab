"""pgqueuer: no Django, asyncpg, and uvloop, which it uses where that is installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.benchmarks.rivals.site import CORES, DEFAULTS, MACHINE, ONE, POSTGRES, Site, Way

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

WORKER = ("pgqueuer", "run", "tests.benchmarks.rivals.handlers.pgqueuer:main")
TUNED = (*WORKER, "--batch-size", "100", "--log-level", "WARNING")


class PgQueuerSite(Site):
    """The fastest of the rivals."""

    name = "pgqueuer"
    vendor = POSTGRES
    distribution = "pgqueuer"
    keeps = "acknowledgements are buffered (a batch of jobs or 0.1 s); no Django, no signatures"
    left = "SELECT count(*) FROM pgqueuer"
    together = 10_000
    ways = (
        Way(DEFAULTS, (WORKER,), "batch 10", 8_000),
        Way(ONE, (TUNED,), "--batch-size 100", 20_000),
        Way(MACHINE, (TUNED,) * CORES, f"{CORES} workers, --batch-size 100", 25_000),
    )

    def start(self) -> None:
        import asyncpg
        import uvloop
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        self.loop = uvloop.new_event_loop()
        self.queries = Queries(AsyncpgDriver(self._run(asyncpg.connect())))

    def _run(self, work: Coroutine[object, object, object]) -> object:
        return self.loop.run_until_complete(work)

    def prepare(self) -> None:
        self._run(self.queries.install())

    def one(self, n: int) -> None:
        self._run(self.queries.enqueue("noop", _payload(n)))

    def each(self, numbers: Iterable[int]) -> None:
        async def all_of_them() -> None:
            for n in numbers:
                await self.queries.enqueue("noop", _payload(n))

        self._run(all_of_them())

    def many(self, numbers: list[int]) -> None:
        payloads = [_payload(n) for n in numbers]
        names, priorities = ["noop"] * len(numbers), [0] * len(numbers)
        self._run(self.queries.enqueue(names, payloads, priorities))


def _payload(n: int) -> bytes:
    return json.dumps({"n": n}).encode()
