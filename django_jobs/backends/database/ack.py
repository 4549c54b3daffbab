"""Ack: jobs that need no further run leave the table, and their results stay.

On PostgreSQL this is one statement: it deletes the rows that their tokens still hold, and
copies their columns into the results without sending them through here. Elsewhere one
transaction locks, checks, copies and deletes the rows. The outcome is the same.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error, connections

from django_jobs.backends.database.keys import Keys, keys_of, no_hints
from django_jobs.backends.database.read import ENDED_SECONDS, start_of
from django_jobs.backends.database.settle import (
    answers_of,
    delete,
    lock_held,
    locked_by_others,
    past_brief_locks,
)
from django_jobs.backends.ended_jobs import results_of
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.db.arrays import plain_array, quoted_array
from django_jobs.db.clock import maybe_for_people
from django_jobs.db.transactions import gave_up, in_statement, in_transition
from django_jobs.models import EndedIds, JobResult

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Lease, ResultRecord, Settled
    from django_jobs.backends.database.keys import Notify
    from django_jobs.db.clock import StoreClock

# A row stays where the claim wrote it, unless it was renewed or cancelled since. Its ctid
# finds it without an index, whatever the planner believes about the table; the cast keeps
# the planner from using an index on the id.
_GONE_FROM_PLACE = (
    "DELETE FROM django_jobs_job AS job WHERE job.ctid = ANY (%s::tid[]) "
    "AND job.id::text = ANY (%s::text[]) AND job.lease_token = ANY (%s::text[])"
)
_GONE = (
    "DELETE FROM django_jobs_job AS job "
    "USING unnest(%s::uuid[], %s::text[]) AS held(id, token) "
    "WHERE job.id = held.id AND job.lease_token = held.token"
)
_WITH = "WITH gone AS ({gone} RETURNING {columns}){parts} SELECT id::text FROM gone"
_KEPT = (
    ", kept AS ("
    "INSERT INTO django_jobs_jobresult (job_id, backend, queue, handler, name, status, value, "
    "output, attempts, trace_id, tenant, worker, enqueued_at, started_at, finished_at, body, "
    "expires) SELECT gone.id, gone.backend, gone.queue, gone.handler, gone.name, done.status, "
    "done.value, done.output, greatest(gone.attempts, 0), gone.trace_id, gone.tenant, done.worker, "
    "gone.created_at, to_timestamp(done.started / 1000000.0), "
    "to_timestamp(done.finished / 1000000.0), gone.body, {now} + done.ttl "
    "FROM gone JOIN unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], "
    "%s::bigint[], %s::bigint[], %s::bigint[]) AS done(id, status, value, output, worker, "
    "started, finished, ttl) ON done.id = gone.id ON CONFLICT DO NOTHING)"
)
# The ids are sent a second time as the text that is stored: building it from the deleted rows
# takes the server as long as the rest of the statement. An id whose lease was lost is noted
# too; its job was enqueued, and the note has to say no more.
_NOTED = (
    ", noted AS (INSERT INTO django_jobs_endedids (start, ids, expires) "
    "SELECT start, ids, {now} + {life} FROM unnest(%s::text[], %s::text[]) AS ended(start, ids) "
    "WHERE EXISTS (SELECT FROM gone))"
)
_KEPT_ROW = (
    "INSERT OR IGNORE INTO django_jobs_jobresult (job_id, backend, queue, handler, name, status, "
    "value, output, attempts, trace_id, tenant, worker, enqueued_at, started_at, finished_at, "
    "body, expires) SELECT id, backend, queue, handler, name, %s, %s, %s, max(attempts, 0), "
    "trace_id, tenant, %s, created_at, %s, %s, body, %s FROM django_jobs_job WHERE id = %s"
)


def ack(
    alias: str,
    clock: StoreClock,
    leases: Sequence[Lease],
    results: Mapping[str, ResultRecord],
    undone: Collection[str],
    notify: Notify = no_hints,
) -> list[Settled]:
    """Delete the jobs whose leases are still held, and keep their results."""
    step = _Ack(alias, clock, results, undone, notify)
    waits = connections[alias].in_atomic_block
    if connections[alias].vendor == "postgresql":
        try:
            settled = step.at_once(leases)
        except Error as error:
            if waits or not gave_up(error):
                raise  # else a row was locked for too long: settle the others
        else:
            return answers_of(leases, settled, set())
    return past_brief_locks(lambda some: step.locking(some, waits=waits), leases)


class _Ack(NamedTuple):
    """What the jobs of one step share."""

    alias: str
    clock: StoreClock
    results: Mapping[str, ResultRecord]
    undone: Collection[str]
    notify: Notify

    def at_once(self, leases: Sequence[Lease]) -> set[str]:
        """Settle with a single statement, inside a transaction only if the jobs have keys."""
        shared = keys_of(leases)

        def alone(connection: BaseDatabaseWrapper) -> set[str]:
            return _at_once(connection, self.clock, leases, self.results)

        if not shared:
            return in_statement(self.alias, alone)
        once = self._once(leases)

        def work(connection: BaseDatabaseWrapper) -> set[str]:
            keys = Keys(self.alias, self.clock, shared, self.notify, once)
            settled = alone(connection)
            self._let_others_go(keys, leases, settled)
            return settled

        return in_transition(self.alias, work, sees_commits=True)

    def locking(self, leases: Sequence[Lease], *, waits: bool) -> list[Settled]:
        """Lock the rows first, so that rows locked by others can be left out."""
        shared = keys_of(leases)
        once = self._once(leases) if shared else ()

        def work(connection: BaseDatabaseWrapper) -> list[Settled]:
            keys = Keys(self.alias, self.clock, shared, self.notify, once)
            held = lock_held(self.alias, leases, waits=waits)
            _gone_with_results(self.alias, connection, self.clock, leases, held, self.results)
            if shared:
                self._let_others_go(keys, leases, held)
            return answers_of(leases, held, locked_by_others(self.alias, leases, held))

        return in_transition(self.alias, work, sees_commits=bool(shared))

    def _once(self, leases: Sequence[Lease]) -> set[str]:
        if connections[self.alias].in_atomic_block:
            return set()  # lock keys before jobs: a deadlock would break the caller's transaction
        keys = ((x.message.index.get("idempotency_key"), x) for x in leases)
        return {key for key, x in keys if key and not x.done_by and x.id not in self.undone}

    def _let_others_go(self, keys: Keys, leases: Sequence[Lease], settled: set[str]) -> None:
        keys.done(x for x in leases if x.id in settled and x.id not in self.undone)
        keys.wake()


def _gone_with_results(
    alias: str,
    connection: BaseDatabaseWrapper,
    clock: StoreClock,
    leases: Sequence[Lease],
    held: set[str],
    results: Mapping[str, ResultRecord],
) -> None:
    mine = [lease for lease in leases if lease.id in held]
    if bare := _without_result(mine, results):
        _note_ended(alias, clock, bare)
    if mine and results:
        now = clock.read(connection)
        if connection.vendor == "sqlite":
            _keep_row_by_row(connection, mine, results, now)
        else:
            rows = results_of(mine, results, now)
            JobResult.objects.using(alias).bulk_create(rows, ignore_conflicts=True)
    if mine:
        delete(alias, mine)


def _without_result(leases: Sequence[Lease], results: Mapping[str, ResultRecord]) -> list[str]:
    """The ids of leases whose result, if any, is kept for less time than an ended id."""
    lasting = {job_id for job_id, record in results.items() if record.ttl_seconds >= ENDED_SECONDS}
    return [lease.id for lease in leases if lease.id not in lasting]


def _note_ended(alias: str, clock: StoreClock, ids: Iterable[str]) -> None:
    expires = clock.now() + to_microseconds(ENDED_SECONDS)
    rows = [EndedIds(start=start, ids=rest, expires=expires) for start, rest in _by_start(ids)]
    EndedIds.objects.using(alias).bulk_create(rows)


def _by_start(ids: Iterable[str]) -> list[tuple[str, str]]:
    """Ids as they are stored: a common start, and the rest of each."""
    return [
        (start, " ".join([job_id[len(start) :] for job_id in alike]))
        for start, alike in groupby(sorted(ids), key=start_of)
    ]


def _keep_row_by_row(
    connection: BaseDatabaseWrapper,
    leases: Sequence[Lease],
    results: Mapping[str, ResultRecord],
    now: int,
) -> None:
    """On SQLite, without a server, many small statements cost a fraction of one large one."""
    store: Any = connection.ops.adapt_datetimefield_value
    records = [(lease.id.replace("-", ""), results.get(lease.id)) for lease in leases]
    rows = [
        (
            record.status,
            record.value_json,
            record.output,
            record.worker,
            store(maybe_for_people(record.started_at)),
            store(maybe_for_people(record.finished_at)),
            now + int(record.ttl_seconds * SECOND),
            job_id,
        )
        for job_id, record in records
        if record is not None
    ]
    with connection.cursor() as cursor:
        cursor.executemany(_KEPT_ROW, rows)


def _at_once(
    connection: BaseDatabaseWrapper,
    clock: StoreClock,
    leases: Sequence[Lease],
    results: Mapping[str, ResultRecord],
) -> set[str]:
    settled: set[str] = set()
    if placed := [lease for lease in leases if lease.handle is not None]:
        params = [
            quoted_array([lease.handle for lease in placed]),
            plain_array([lease.id for lease in placed]),
            plain_array({lease.token for lease in placed}),
        ]
        settled = _gone(connection, clock, _GONE_FROM_PLACE, params, placed, results)
    if left := [lease for lease in leases if lease.id not in settled]:
        params = [
            plain_array([lease.id for lease in left]),
            plain_array([lease.token for lease in left]),
        ]
        settled |= _gone(connection, clock, _GONE, params, left, results)
    return settled


def _gone(
    connection: BaseDatabaseWrapper,
    clock: StoreClock,
    gone: str,
    params: list[str],
    leases: Sequence[Lease],
    results: Mapping[str, ResultRecord],
) -> set[str]:
    """Run a statement that deletes jobs and keeps their results; the ids of the deleted jobs."""
    parts, columns = "", "job.id"
    if results:
        parts, columns, params = _KEPT, "job.*", params + _result_arrays(leases, results)
    if bare := _without_result(leases, results):
        starts, rests = zip(*_by_start(bare), strict=True)
        parts, params = parts + _NOTED, [*params, quoted_array(starts), quoted_array(rests)]
    now, life = clock.sql(connection.vendor), to_microseconds(ENDED_SECONDS)
    sql = _WITH.format(gone=gone, columns=columns, parts=parts.format(now=now, life=life))
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {job_id for (job_id,) in cursor.fetchall()}


def _result_arrays(leases: Sequence[Lease], results: Mapping[str, ResultRecord]) -> list[str]:
    ids = [lease.id for lease in leases if lease.id in results]
    records = [results[job_id] for job_id in ids]
    return [
        plain_array(ids),
        quoted_array([record.status for record in records]),
        quoted_array([record.value_json for record in records]),
        quoted_array([record.output for record in records]),
        quoted_array([record.worker for record in records]),
        plain_array([_or_null(record.started_at) for record in records]),
        plain_array([_or_null(record.finished_at) for record in records]),
        plain_array([str(int(record.ttl_seconds * SECOND)) for record in records]),
    ]


def _or_null(moment: int | None) -> str:
    return "NULL" if moment is None else str(moment)
