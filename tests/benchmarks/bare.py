"""The limit that drains are held against: one psycopg loop that claims, runs nothing, acks.

Claims of a hundred and one statement that acks them, each committed by itself; no
signature, no retry, no result, and nothing that would notice a crash.
"""

from __future__ import annotations

import time
from typing import Any

from tests.benchmarks.measuring import Figures, rest, server_seconds

CLAIMED = 100
TABLE = (
    "CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, queue text NOT NULL, "
    "state smallint NOT NULL DEFAULT 1, due timestamptz NOT NULL DEFAULT now(), token text, "
    "body text NOT NULL)"
)
INDEX = "CREATE INDEX IF NOT EXISTS bare_claim ON bare (queue, due, id) WHERE state = 1"
FILL = (
    "INSERT INTO bare (queue, body) SELECT 'default', '{\"n\": ' || n || '}' "
    "FROM generate_series(1, %s) AS n"
)
CLAIM = (
    "UPDATE bare SET state = 2, token = %s WHERE id IN (SELECT id FROM bare WHERE queue = %s "
    f"AND state = 1 ORDER BY due, id LIMIT {CLAIMED} FOR UPDATE SKIP LOCKED) RETURNING id, body"
)
ACK = "DELETE FROM bare WHERE id = ANY(%s) AND token = %s"


def bare(jobs: int) -> Figures:
    """Drain so many rows."""
    with connected() as connection:
        connection.execute(TABLE)
        connection.execute(INDEX)
        connection.execute("TRUNCATE bare")
        connection.execute(FILL, [jobs])
        rest()
        before = server_seconds()
        wall, cpu, done = time.perf_counter(), time.process_time(), 0
        while rows := connection.execute(CLAIM, ["token", "default"]).fetchall():
            done += len(rows)
            connection.execute(ACK, [[row[0] for row in rows], "token"])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        server = server_seconds() - before
        connection.execute("TRUNCATE bare")
    assert done == jobs, done
    return Figures(
        per_second=jobs / wall, worker_cpu=cpu / jobs * 1e6, server_cpu=server / jobs * 1e6
    )


def connected() -> Any:
    """A connection of psycopg's own to the database of this run, in autocommit."""
    import psycopg
    from django.db import connection

    connection.ensure_connection()
    known = {"host", "port", "user", "password", "dbname"}
    params = connection.get_connection_params()
    return psycopg.connect(
        **{key: value for key, value in params.items() if key in known and value},
        autocommit=True,
    )
