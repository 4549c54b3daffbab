"""django_jobs: the real worker, everything at its defaults: results, signatures, events."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rivals.site import (
    CORES,
    DEFAULTS,
    MACHINE,
    ONE,
    POSTGRES,
    SQLITE,
    DjangoSite,
    Way,
)

NO_RESULTS = "no results"
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
        off = {"RESULT_TTL": 0} if self.surroundings.way == NO_RESULTS else {}
        return {"DJANGO_JOBS": {"SITE": "rivals", **off}}

    def one(self, n: int) -> None:
        from tests.benchmarks.rivals.handlers.jobs import noop

        noop.enqueue(n=n)

    def many(self, numbers: list[int]) -> None:
        from django_jobs import enqueue_many
        from tests.benchmarks.rivals.handlers.jobs import noop

        enqueue_many(noop.prepare(n=n) for n in numbers)


class OurSqliteSite(OurSite):
    """On SQLite."""

    vendor = SQLITE
    ways = (
        Way(DEFAULTS, (("django", "jobs_work"),), "a line of log per job", 4_000),
        Way(ONE, ((*QUIET, "--processes", "1"),), "-v0 --processes 1", 6_000),
        Way(MACHINE, ((*QUIET, "--processes", str(CORES)),), f"-v0 --processes {CORES}", 6_000),
    )
