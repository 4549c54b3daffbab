"""dj-queue, a backend of Django's Tasks in the shape of Solid Queue."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rivals.site import CORES, DEFAULTS, MACHINE, ONE, POSTGRES, DjangoSite, Way

WORKER = ("django", "dj_queue")
THREADS, PREFETCH = 8, 20


class DjQueueSite(DjangoSite):
    """Claims several jobs at once, finishes each by itself."""

    name = "dj-queue"
    vendor = POSTGRES
    distribution = "dj-queue"
    keeps = "a commit per finish; leases by process: killed work is parked as failed, not rerun"
    left = (
        "SELECT (SELECT count(*) FROM dj_queue_jobs WHERE finished_at IS NULL) "
        "+ (SELECT count(*) FROM dj_queue_ready_executions) "
        "+ (SELECT count(*) FROM dj_queue_claimed_executions) "
        "+ (SELECT count(*) FROM dj_queue_failed_executions)"
    )
    apps = ("dj_queue",)
    ways = (
        Way(DEFAULTS, (WORKER,), "3 threads, prefetch × 2", 600, reconnects=True),
        Way(
            ONE,
            (WORKER,),
            f"{THREADS} threads, prefetch × {PREFETCH}, CONN_MAX_AGE None",
            1_500,
        ),
        Way(
            MACHINE,
            (WORKER,),
            f"{CORES} × {THREADS} threads, prefetch × {PREFETCH}, CONN_MAX_AGE None",
            2_000,
        ),
    )

    def extra(self) -> dict[str, Any]:
        worker = {
            "threads": THREADS,
            "prefetch_multiplier": PREFETCH,
            "processes": CORES if self.surroundings.way == MACHINE else 1,
        }
        options = {"workers": [worker]} if self.tuned else {}
        backend = {
            "BACKEND": "dj_queue.backend.DjQueueBackend",
            "QUEUES": [],
            "OPTIONS": options,
        }
        return {
            "TASKS": {"default": backend},
            "DATABASE_ROUTERS": ["dj_queue.routers.DjQueueRouter"],
        }

    def one(self, n: int) -> None:
        from tests.benchmarks.rivals.handlers.tasks import noop

        noop.enqueue(n=n)

    def many(self, numbers: list[int]) -> None:
        from tests.benchmarks.rivals.handlers.tasks import noop

        noop.get_backend().enqueue_all([(noop, [], {"n": n}) for n in numbers])
