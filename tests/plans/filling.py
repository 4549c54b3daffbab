"""A million jobs in a few seconds: rows made by the database itself.

Written without any of the code they are to judge; ids ascend in the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

BACKEND = "database"
QUEUES = 5
SCHEDULED, READY, RUNNING = 0, 1, 2

_INSERT = """
INSERT INTO django_jobs_job
    (id, backend, queue, handler, body, signature, key_id, {rank}, state, due, created_at,
     lease_token, lease_expires)
"""
_ROWS = {
    "postgresql": """
SELECT (lpad(to_hex(i), 12, '0') || '70008000000000000000')::uuid, '{backend}',
       'queue-' || (i % {queues}), 'plans.noop', '{{}}', repeat('0', 64), 'a-key', i / 7 % 3,
       {state}, {due} + i, now(), {token}, {expires}
FROM generate_series({first}, {last}) AS i
""",
    "mysql": """
SELECT concat(lpad(lower(hex(seq)), 12, '0'), '70008000000000000000'), '{backend}',
       concat('queue-', seq % {queues}), 'plans.noop', '{{}}', repeat('0', 64), 'a-key',
       seq DIV 7 % 3, {state}, {due} + seq, utc_timestamp(6), {token}, {expires}
FROM seq_{first}_to_{last}
""",
    "sqlite": """
WITH RECURSIVE numbers(i) AS (
    SELECT {first} UNION ALL SELECT i + 1 FROM numbers WHERE i < {last}
)
SELECT printf('%012x', i) || '70008000000000000000', '{backend}', 'queue-' || (i % {queues}),
       'plans.noop', '{{}}', printf('%064d', 0), 'a-key', i / 7 % 3, {state}, {due} + i,
       datetime('now'), {token}, {expires}
FROM numbers
""",
}
_ANALYZE = {
    "postgresql": "ANALYZE django_jobs_job",
    "mysql": "ANALYZE TABLE django_jobs_job",
    "sqlite": "ANALYZE django_jobs_job",
}


@dataclass
class Table:
    """The table of live jobs, filled and emptied by hand."""

    connection: BaseDatabaseWrapper
    filled: int = 0

    def add(self, count: int, state: int, due: int, lease_expires: int | None = None) -> None:
        """Add ``count`` jobs over all queues, each due a microsecond after the one before."""
        vendor = self.connection.vendor
        rows = _ROWS[vendor].format(
            backend=BACKEND,
            queues=QUEUES,
            state=state,
            due=due,
            token="NULL" if lease_expires is None else "'somebody'",
            expires="NULL" if lease_expires is None else lease_expires,
            first=self.filled + 1,
            last=self.filled + count,
        )
        insert = _INSERT.format(rank=self.connection.ops.quote_name("rank"))
        self._execute(insert + rows)
        self.filled += count

    def analyze(self) -> None:
        self._execute(_ANALYZE[self.connection.vendor])

    def empty(self) -> None:
        truncates = self.connection.vendor != "sqlite"
        self._execute(f"{'TRUNCATE TABLE' if truncates else 'DELETE FROM'} django_jobs_job")
        self.filled = 0

    def _execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
