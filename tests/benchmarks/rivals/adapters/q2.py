"""django-q2 with its ORM broker, and with its broker on Redis."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rivals.site import (
    CORES,
    DEFAULTS,
    MACHINE,
    ONE,
    POSTGRES,
    REDIS,
    DjangoSite,
    Way,
    file_beside,
)


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


class Q2RedisSite(Q2Site):
    """On Redis; the database of the site, for its results, is an SQLite file."""

    vendor = REDIS
    keeps = "at most once: a task is removed before it runs, killed work is lost; signed pickle"
    left = "return redis.call('LLEN', 'django_q:rivals:q')"
    ways = (
        Way(DEFAULTS, (("django", "qcluster"),), "results kept (250)", 200),
        Way(ONE, (("django", "qcluster"),), "1 worker, no results, quiet", 1_500),
        Way(MACHINE, (("django", "qcluster"),), f"{CORES} workers, no results", 1_500),
    )

    def extra(self) -> dict[str, Any]:
        asked = {**super().extra()["Q_CLUSTER"], "redis": self.surroundings.database}
        return {"Q_CLUSTER": {name: value for name, value in asked.items() if name != "orm"}}

    def _database(self) -> dict[str, Any]:
        return file_beside(self.surroundings.database, "q2")
