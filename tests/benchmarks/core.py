"""Enqueue and claim on PostgreSQL, beside bare psycopg loops in the same run.

DJANGO_JOBS_TEST_DB=postgres python -m tests.benchmarks.core
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from tests.benchmarks.harness import (
    Contest,
    print_conditions,
    throwaway_database,
    write_json,
)

BARE_TABLE = (
    "CREATE TABLE bare (id bigserial PRIMARY KEY, queue text NOT NULL, body text NOT NULL, "
    "due timestamptz NOT NULL DEFAULT now())"
)
BARE_INSERT = "INSERT INTO bare (queue, body) VALUES (%s, %s)"
BARE_BODY = '{"n": 1}'
PER_STATEMENT = 1000
SCHEDULED_ROWS = 1_000_000
CLAIMED = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--rows", type=int, default=SCHEDULED_ROWS, help="scheduled rows")
    options = parser.parse_args()
    with throwaway_database():
        print_conditions()
        figures = {**enqueue_figures(), **claim_figures(options.rows)}
        write_json(options.json, figures)


def enqueue_figures() -> dict[str, float]:
    """One by one, and in bulk."""
    from django.db import connection

    from django_jobs import enqueue_many, job

    @job(key="benchmark.noop")
    def noop(n: int) -> int:
        return n

    bare, committing = _psycopg(autocommit=True), _psycopg(autocommit=False)
    bare.execute(BARE_TABLE)

    def bare_commit(count: int) -> None:
        for _ in range(count):
            committing.execute(BARE_INSERT, ("default", BARE_BODY))
            committing.commit()

    def bare_autocommit(count: int) -> None:
        for _ in range(count):
            bare.execute(BARE_INSERT, ("default", BARE_BODY))

    def ours(count: int) -> None:
        for n in range(count):
            noop.enqueue(n)

    def bare_many(count: int) -> None:
        sql = "INSERT INTO bare (queue, body) VALUES " + ", ".join(["(%s, %s)"] * PER_STATEMENT)
        for _ in range(count // PER_STATEMENT):
            bare.execute(sql, ["default", BARE_BODY] * PER_STATEMENT)

    def ours_many(count: int) -> None:
        enqueue_many(noop.prepare(n) for n in range(count))

    one = Contest("Enqueue one by one", 1500)
    one.contestants = {
        "bare psycopg: INSERT, then commit()": bare_commit,
        "bare psycopg: INSERT in autocommit, prepared": bare_autocommit,
        "django_jobs: enqueue()": ours,
    }
    many = Contest("Enqueue in bulk", 20_000)
    many.contestants = {
        "bare psycopg: 1,000 rows per INSERT": bare_many,
        "django_jobs: enqueue_many()": ours_many,
    }
    for contest in (one, many):
        contest.run()
        contest.print(next(iter(contest.contestants)))
    autocommit = one.ratio("django_jobs: enqueue()", "bare psycopg: INSERT in autocommit, prepared")
    print(f"\n  enqueue() beside the autocommit loop: {autocommit:.2f}")
    bare.close()
    committing.close()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_jobs_job, bare")
    return {
        "enqueue_per_second": one.median("django_jobs: enqueue()"),
        "enqueue_ratio_commit": one.ratio(
            "django_jobs: enqueue()", "bare psycopg: INSERT, then commit()"
        ),
        "enqueue_ratio_autocommit": autocommit,
        "enqueue_many_per_second": many.median("django_jobs: enqueue_many()"),
        "enqueue_many_ratio": many.ratio(
            "django_jobs: enqueue_many()", "bare psycopg: 1,000 rows per INSERT"
        ),
    }


def claim_figures(scheduled: int) -> dict[str, float]:
    """A claim of a hundred, with and without a million jobs that are due later."""
    from django.db import connection

    from django_jobs.backends.registry import backends

    backend: Any = backends["database"]

    def claims(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            started = time.perf_counter()
            leases = backend.fetch(["default"], CLAIMED, 30)
            taken.append(time.perf_counter() - started)
            assert len(leases) == CLAIMED, len(leases)
            backend.ack(leases)
        return taken

    without, beside = [], []
    for _ in range(3):
        _ready_rows(5000)
        _settle_server()
        without += claims(30)
        _scheduled_rows(scheduled)
        _ready_rows(5000)
        _settle_server()
        beside += claims(30)
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE django_jobs_job")
    quick, slow = statistics.median(without), statistics.median(beside)
    print(f"\nClaim of {CLAIMED} ({len(without)} each)")
    print(f"  without scheduled jobs              {quick * 1e3:8.2f} ms")
    print(f"  beside {scheduled:>9,} scheduled jobs    {slow * 1e3:8.2f} ms")
    print(f"  ratio                               {slow / quick:8.2f}")
    return {"claim_ratio_scheduled": slow / quick, "claim_ms": quick * 1e3}


def _settle_server() -> None:
    """What a million inserts leave to be written is not what a claim costs."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE django_jobs_job")
        cursor.execute("CHECKPOINT")


def _ready_rows(count: int) -> None:
    from django_jobs.enqueue import enqueue_many
    from django_jobs.handlers.registry import registry

    handler: Any = registry.get("benchmark.noop")
    from django_jobs.decorators import JobFunction
    from django_jobs.definition import Options

    noop: Any = JobFunction(handler.function, handler, Options())
    enqueue_many(noop.prepare(n) for n in range(count))


def _scheduled_rows(count: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_jobs_job (id, backend, queue, handler, rank, body, signature, "
            "key_id, state, due, created_at) SELECT gen_random_uuid(), 'database', 'default', "
            "'benchmark.noop', 0, repeat('x', 250), repeat('0', 64), 'k', 0, "
            "(extract(epoch from now()) * 1000000)::bigint + 3600000000 + n, now() "
            "FROM generate_series(1, %s) AS n",
            [count],
        )


def _psycopg(*, autocommit: bool) -> Any:
    import psycopg
    from django.db import connection

    connection.ensure_connection()
    return psycopg.connect(
        **{
            key: value
            for key, value in connection.get_connection_params().items()
            if key in {"host", "port", "user", "password", "dbname"} and value
        },
        autocommit=autocommit,
    )


if __name__ == "__main__":
    main()
