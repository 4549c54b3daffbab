"""Ack: jobs that need no further run leave the table, and their results stay.

On PostgreSQL it is one statement: what is still held by its token is deleted, and its
columns go straight into the results without a way through here. Elsewhere the rows are
locked, judged and deleted in one transaction. Both mean the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from django_jobs.backends.base import Settled
from django_jobs.backends.database.arrays import plain_array, quoted_array
from django_jobs.backends.database.held import delete, lock_held
from django_jobs.backends.database.rows import results_of
from django_jobs.backends.database.transactions import in_statement, in_transition
from django_jobs.clock import SECOND
from django_jobs.models import JobResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Lease, ResultRecord
    from django_jobs.backends.database.clock import StoreClock

_GONE = (
    "DELETE FROM django_jobs_job AS job "
    "USING unnest(%s::uuid[], %s::text[]) AS held(id, token) "
    "WHERE job.id = held.id AND job.lease_token = held.token"
)
_GONE_AND_KEPT = (
    f"WITH gone AS ({_GONE} RETURNING job.*), kept AS ("  # noqa: S608 - constants of ours
    "INSERT INTO django_jobs_jobresult (job_id, backend, queue, handler, name, status, value, "
    "output, attempts, trace_id, tenant, worker, enqueued_at, started_at, finished_at, body, "
    "expires) SELECT gone.id, gone.backend, gone.queue, gone.handler, gone.name, told.status, "
    "told.value, told.output, gone.attempts, gone.trace_id, gone.tenant, told.worker, "
    "gone.created_at, to_timestamp(told.started / 1000000.0), "
    "to_timestamp(told.finished / 1000000.0), gone.body, {now} + told.ttl "
    "FROM gone JOIN unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], "
    "%s::bigint[], %s::bigint[], %s::bigint[]) AS told(id, status, value, output, worker, "
    "started, finished, ttl) ON told.id = gone.id ON CONFLICT DO NOTHING) SELECT id::text FROM gone"
)


def ack(
    alias: str, clock: StoreClock, leases: Sequence[Lease], results: Mapping[str, ResultRecord]
) -> list[Settled]:
    """Delete what is still held, and keep its results."""

    def locked(connection: BaseDatabaseWrapper) -> set[str]:
        held = lock_held(alias, leases)
        mine = [lease for lease in leases if lease.id in held]
        if mine:
            delete(alias, mine)
        if mine and results:
            rows = results_of(mine, results, clock.read(connection))
            JobResult.objects.using(alias).bulk_create(rows, ignore_conflicts=True)
        return held

    def at_once(connection: BaseDatabaseWrapper) -> set[str]:
        return _in_one_statement(connection, clock, leases, results)

    if _is_postgresql(alias):
        settled = in_statement(alias, at_once)
    else:
        settled = in_transition(alias, locked)
    return [Settled.SETTLED if lease.id in settled else Settled.LOST for lease in leases]


def _is_postgresql(alias: str) -> bool:
    return connections[alias].vendor == "postgresql"


def _in_one_statement(
    connection: BaseDatabaseWrapper,
    clock: StoreClock,
    leases: Sequence[Lease],
    results: Mapping[str, ResultRecord],
) -> set[str]:
    params = [
        plain_array([lease.id for lease in leases]),
        plain_array([lease.token for lease in leases]),
    ]
    if not results:
        sql = f"{_GONE} RETURNING job.id::text"
    else:
        sql = _GONE_AND_KEPT.format(now=clock.sql(connection.vendor))
        ids = [lease.id for lease in leases if lease.id in results]
        told = [results[job_id] for job_id in ids]
        params += [
            plain_array(ids),
            quoted_array([record.status for record in told]),
            quoted_array([record.value_json for record in told]),
            quoted_array([record.output for record in told]),
            quoted_array([record.worker for record in told]),
            plain_array([_or_null(record.started_at) for record in told]),
            plain_array([_or_null(record.finished_at) for record in told]),
            plain_array([str(int(record.ttl_seconds * SECOND)) for record in told]),
        ]
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {job_id for (job_id,) in cursor.fetchall()}


def _or_null(moment: int | None) -> str:
    return "NULL" if moment is None else str(moment)
