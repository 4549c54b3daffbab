"""procrastinate, with its Django integration."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rivals.site import CORES, DEFAULTS, MACHINE, ONE, POSTGRES, DjangoSite, Way

WORKER = ("django", "procrastinate", "worker")
TUNED = (*WORKER, "--concurrency", "10")


class ProcrastinateSite(DjangoSite):
    """Its worker has a connection pool of its own."""

    name = "procrastinate"
    vendor = POSTGRES
    distribution = "procrastinate"
    keeps = "a commit per claim and per finish, rows of history; stalled work is yours to retry"
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'"
    apps = ("procrastinate.contrib.django",)
    ways = (
        Way(DEFAULTS, (WORKER,), "concurrency 1", 600),
        Way(ONE, (TUNED,), "--concurrency 10", 900),
        Way(MACHINE, (TUNED,) * CORES, f"{CORES} workers, --concurrency 10", 1_200),
    )

    def extra(self) -> dict[str, Any]:
        return {"PROCRASTINATE_IMPORT_PATHS": ["tests.benchmarks.rivals.handlers.procrastinate"]}

    def one(self, n: int) -> None:
        from tests.benchmarks.rivals.handlers.procrastinate import noop

        noop.defer(n=n)

    def many(self, numbers: list[int]) -> None:
        from tests.benchmarks.rivals.handlers.procrastinate import noop

        noop.batch_defer(*({"n": n} for n in numbers))
