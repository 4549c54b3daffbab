"""django-q2 with its ORM broker."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rivals.site import CORES, DEFAULTS, MACHINE, ONE, POSTGRES, DjangoSite, Way


class Q2Site(DjangoSite):
    """One pusher reads the table for all workers, one monitor writes it."""

    name = "django-q2"
    vendor = POSTGRES
    distribution = "django-q2"
    keeps = (
        "acknowledged after the run, some way behind it; killed work is retried after a fixed time"
    )
    left = "SELECT count(*) FROM django_q_ormq"
    bulk = False
    apps = ("django_q",)
    ways = (
        Way(DEFAULTS, (("django", "qcluster"),), "results kept (250)", 200, reconnects=True),
        Way(ONE, (("django", "qcluster"),), "1 worker, bulk 50, no results, quiet", 1_000),
        Way(MACHINE, (("django", "qcluster"),), f"{CORES} workers, bulk 50, no results", 1_000),
    )

    def extra(self) -> dict[str, Any]:
        tuned = {
            "workers": CORES if self.surroundings.way == MACHINE else 1,
            "bulk": 50,
            "queue_limit": 500,
            "recycle": 100_000,
            "save_limit": -1,
            "log_level": "WARNING",
        }
        timing = {"timeout": 50, "retry": 60}  # it warns when neither is set
        asked = tuned if self.tuned else {}
        return {"Q_CLUSTER": {"name": "rivals", "orm": "default", **timing, **asked}}

    def one(self, n: int) -> None:
        from django_q.tasks import async_task

        async_task("tests.benchmarks.rivals.handlers.plain.noop", n=n)
