"""procrastinate by itself: its Django integration adds two changes of thread to each job."""

from __future__ import annotations

from tests.benchmarks.rivals.site import CORES, DEFAULTS, MACHINE, ONE, POSTGRES, Site, Way

WORKER = ("procrastinate", "--app", "tests.benchmarks.rivals.handlers.procrastinate.app", "worker")
TUNED = (*WORKER, "--concurrency", "10")


class ProcrastinateSite(Site):
    """Its worker is one event loop with a pool of connections."""

    name = "procrastinate"
    vendor = POSTGRES
    distribution = "procrastinate"
    keeps = "a commit per claim and per finish, rows of history; stalled work is yours to retry"
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'"
    together = 1_000
    ways = (
        Way(DEFAULTS, (WORKER,), "concurrency 1", 600),
        Way(ONE, (TUNED,), "--concurrency 10", 900),
        Way(MACHINE, (TUNED,) * CORES, f"{CORES} workers, --concurrency 10", 1_200),
    )

    def start(self) -> None:
        from tests.benchmarks.rivals.handlers.procrastinate import app, noop

        self.app, self.noop = app, noop
        app.open()

    def prepare(self) -> None:
        self.app.schema_manager.apply_schema()

    def one(self, n: int) -> None:
        self.noop.defer(n=n)

    def many(self, numbers: list[int]) -> None:
        self.noop.batch_defer(*({"n": n} for n in numbers))
