"""django_jobs: the real worker, everything at its defaults: results, signatures, events."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rivals.adapters.djangos_tasks import TasksSite
from tests.benchmarks.rivals.site import (
    CORES,
    DEFAULTS,
    MACHINE,
    ONE,
    POSTGRES,
    REDIS,
    SQLITE,
    DjangoSite,
    Way,
    file_beside,
)

NO_RESULTS = "no results"
NO_RESULTS_ONE = f"{NO_RESULTS}, one process"
QUIET = ("django", "jobs_work", "-v0")


class OurSite(DjangoSite):
    """On PostgreSQL."""

    name = "django_jobs"
    vendor = POSTGRES
    distribution = ""  # the commit that the conditions name
    keeps = (
        "signed and verified; leased with a token per claim; outcomes settled in natural batches "
        "within milliseconds; killed work runs again"
    )
    left = (
        "SELECT (SELECT count(*) FROM django_jobs_job) "
        "+ (SELECT count(*) FROM django_jobs_failedjob)"
    )
    apps = ("django_jobs", "tests.benchmarks.rivals.handlers")
    ways = (
        Way(DEFAULTS, (("django", "jobs_work"),), "a line of log per job", 8_000, reconnects=True),
        Way(ONE, ((*QUIET, "--processes", "1"),), "-v0 --processes 1", 10_000),
        Way(MACHINE, ((*QUIET, "--processes", str(CORES)),), f"-v0 --processes {CORES}", 12_000),
        Way(
            NO_RESULTS,
            ((*QUIET, "--processes", str(CORES)),),
            f"-v0 --processes {CORES}, RESULT_TTL 0",
            15_000,
        ),
    )

    def extra(self) -> dict[str, Any]:
        off = {"RESULT_TTL": 0} if self.surroundings.way.startswith(NO_RESULTS) else {}
        return {"DJANGO_JOBS": {"SITE": "rivals", **off}}

    def one(self, n: int) -> None:
        from tests.benchmarks.rivals.handlers.jobs import noop

        noop.enqueue(n=n)

    def many(self, numbers: list[int]) -> None:
        from django_jobs import enqueue_many
        from tests.benchmarks.rivals.handlers.jobs import noop

        enqueue_many(noop.prepare(n=n) for n in numbers)


class OurTasksSite(TasksSite, OurSite):
    """Tasks of Django's own decorator, on PostgreSQL."""

    name = "django_jobs, @task"
    model = "django_jobs.JobResult"
    ways = tuple(way for way in OurSite.ways if way.name != NO_RESULTS)
    bulk = False

    def extra(self) -> dict[str, Any]:
        tasks = {"default": {"BACKEND": "django_jobs.tasks.JobsBackend"}}
        return {**super().extra(), "TASKS": tasks}


class OurSqliteSite(OurSite):
    """On SQLite."""

    vendor = SQLITE
    ways = (
        Way(DEFAULTS, (("django", "jobs_work"),), "a line of log per job", 4_000),
        Way(ONE, ((*QUIET, "--processes", "1"),), "-v0 --processes 1", 6_000),
        Way(MACHINE, ((*QUIET, "--processes", str(CORES)),), f"-v0 --processes {CORES}", 6_000),
    )


class OurRedisSite(OurSite):
    """On Redis; the database of the site, for dead letters, is an SQLite file."""

    vendor = REDIS
    left = (
        "return redis.call('HLEN', '{django_jobs:default}:3:jobs') "
        "+ redis.call('HLEN', '{django_jobs:default}:3:dead')"
    )
    ways = (
        Way(DEFAULTS, (("django", "jobs_work"),), "a line of log per job", 8_000),
        Way(ONE, ((*QUIET, "--processes", "1"),), "-v0 --processes 1", 15_000),
        Way(MACHINE, ((*QUIET, "--processes", str(CORES)),), f"-v0 --processes {CORES}", 12_000),
        Way(
            NO_RESULTS,
            ((*QUIET, "--processes", str(CORES)),),
            f"-v0 --processes {CORES}, RESULT_TTL 0",
            20_000,
        ),
        Way(
            NO_RESULTS_ONE,
            ((*QUIET, "--processes", "1"),),
            "-v0 --processes 1, RESULT_TTL 0",
            20_000,
        ),
    )

    def extra(self) -> dict[str, Any]:
        path = "django_jobs.backends.redis.RedisBackend"
        options = {"URL": self.surroundings.database}
        jobs = super().extra()["DJANGO_JOBS"]
        backends = {"redis": {"BACKEND": path, "OPTIONS": options}}
        return {"DJANGO_JOBS": {**jobs, "BACKENDS": backends, "DEFAULT_BACKEND": "redis"}}

    def _database(self) -> dict[str, Any]:
        return file_beside(self.surroundings.database, "ours")
