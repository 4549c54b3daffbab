# ruff: noqa: E501 - SQL is read best in whole lines
"""A million dead letters in a minute: rows made by the database itself.

Of 500 errors in 20 handlers and five queues; a tenth of them open, or nine tenths. All of
queue-4 is resolved, and what was rejected stood in queue-0: what two filters leave together
may be nothing, however many each of them leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


_INSERT = """
INSERT INTO django_jobs_failedjob
    (backend, job_id, queue, handler, body, signature, key_id, {rank}, trace_id, reason, error_type,
     error_message, traceback, output, fingerprint, enqueued_at, failed_at, resolution,
     resolution_note)
"""
_COLUMNS = """
SELECT 'database', {uuid}, {concat_queue}, {concat_handler},
       {body}, {signature}, 'a-key', 0, {trace},
       CASE WHEN {i} % 5 = 0 AND {i} % 3 = 0 THEN 'rejected-signature'
            WHEN {i} % 7 = 0 THEN 'timed-out' ELSE 'exhausted' END,
       'builtins.RuntimeError', {message}, {traceback}, '', {fingerprint},
       {moment}, {moment},
       CASE WHEN {i} % 5 = 4 OR {i} % {closed} THEN
            CASE WHEN {i} % 3 = 0 THEN 'discarded' ELSE 'replayed' END
       ELSE '' END, ''
"""
_BY_VENDOR = {
    "postgresql": (
        {
            "i": "i",
            "uuid": "(lpad(to_hex(i), 12, '0') || '7000' || md5(i::text || 'x')::varchar(16))::uuid",
            "concat_queue": "'queue-' || (i % 5)",
            "concat_handler": "'shop.jobs.handler_' || (i % 20)",
            "body": "'{{\"payload\":{{\"args\":[' || i || '],\"note\":\"' || repeat('payload ', 40) || '\"}}}}'",
            "signature": "repeat('0', 64)",
            "trace": "md5(i::text)",
            "message": "'the gateway did not answer request ' || i",
            "traceback": "repeat('a line of a traceback, as long as such lines are ', 25)",
            "fingerprint": "md5((i % 500)::text)",
            "moment": "now() - ({last} - i) * interval '1 second'",
        },
        "FROM generate_series({first}, {last}) AS i",
    ),
    "mysql": (
        {
            "i": "seq",
            "uuid": "concat(lpad(lower(hex(seq)), 12, '0'), '7000', left(md5(concat(seq, 'x')), 16))",
            "concat_queue": "concat('queue-', seq % 5)",
            "concat_handler": "concat('shop.jobs.handler_', seq % 20)",
            "body": "concat('{{\"payload\":{{\"args\":[', seq, '],\"note\":\"', repeat('payload ', 40), '\"}}}}')",
            "signature": "repeat('0', 64)",
            "trace": "md5(seq)",
            "message": "concat('the gateway did not answer request ', seq)",
            "traceback": "repeat('a line of a traceback, as long as such lines are ', 25)",
            "fingerprint": "md5(seq % 500)",
            "moment": "utc_timestamp(6) - interval ({last} - seq) second",
        },
        "FROM seq_{first}_to_{last}",
    ),
    "sqlite": (
        {
            "i": "i",
            "uuid": "printf('%012x', i) || '7000' || printf('%016x', i * 2654435761)",
            "concat_queue": "'queue-' || (i % 5)",
            "concat_handler": "'shop.jobs.handler_' || (i % 20)",
            "body": '\'{{"payload":{{"args":[\' || i || \'],"note":"payload"}}}}\'',
            "signature": "printf('%064d', 0)",
            "trace": "printf('%08x', (i * 2654435761) % 4294967296) || printf('%024x', i)",
            "message": "'the gateway did not answer request ' || i",
            "traceback": "'a line of a traceback, as long as such lines are'",
            "fingerprint": "printf('%08x', ((i % 500) * 2654435761) % 4294967296) || printf('%024x', i % 500)",
            "moment": "datetime('now', printf('-%d seconds', {last} - i))",
        },
        "FROM numbers",
    ),
}
_NUMBERS = "WITH RECURSIVE numbers(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM numbers WHERE i < {last})"


def fill(connection: BaseDatabaseWrapper, count: int, *, mostly_open: bool) -> None:
    """Add dead letters, the last of which failed just now."""
    values, source = _BY_VENDOR[connection.vendor]
    bounds = {"first": 1, "last": count}
    filled = {name: value.format(**bounds) for name, value in values.items()}
    select = _COLUMNS.format(**filled, closed="10 = 9" if mostly_open else "7 <> 1")
    insert = _INSERT.format(rank=connection.ops.quote_name("rank"))
    numbers = _NUMBERS.format(**bounds) if connection.vendor == "sqlite" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"{insert} {numbers} {select} {source.format(**bounds)}")


def empty(connection: BaseDatabaseWrapper) -> None:
    """No dead letters, and no groups of them."""
    truncates = connection.vendor != "sqlite"
    with connection.cursor() as cursor:
        for table in ("django_jobs_failedjob", "django_jobs_failuregroup"):
            cursor.execute(f"{'TRUNCATE TABLE' if truncates else 'DELETE FROM'} {table}")


def analyze(connection: BaseDatabaseWrapper) -> None:
    """Let the planner know what there is."""
    told = {"postgresql": "VACUUM ANALYZE", "mysql": "ANALYZE TABLE", "sqlite": "ANALYZE"}
    with connection.cursor() as cursor:
        cursor.execute(f"{told[connection.vendor]} django_jobs_failedjob")
