"""Enqueue: one INSERT that is a no-op for what is there already.

Every statement names its columns, so that a release that knows fewer of them can write
to a table that has more. Columns that a job says nothing about are left to the
database's defaults.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from django.db import Error, IntegrityError, connections
from django.utils import timezone

from django_jobs.backends.base import Enqueued, OnConflict
from django_jobs.backends.database.transactions import in_transition, is_connection_lost
from django_jobs.backends.database.unique import resolve_conflicts
from django_jobs.clock import to_microseconds
from django_jobs.exceptions import EnqueueOutcomeUnknown
from django_jobs.models import Job, JobState
from django_jobs.wire.envelope import index_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.database.clock import StoreClock
    from django_jobs.wire.envelope import Outgoing, Terms

ROWS_PER_STATEMENT = 1000
_CREATED_AT = Job._meta.get_field("created_at")


def insert(
    alias: str, clock: StoreClock, outgoing: Sequence[Outgoing], on_conflict: OnConflict
) -> list[Enqueued]:
    """Store messages; see ``Backend.enqueue``."""
    connection = connections[alias]

    def work(connection: BaseDatabaseWrapper) -> list[Enqueued]:
        fresh = [_insert_chunk(connection, clock, chunk) for chunk in _chunks(outgoing)]
        if all(fresh):
            return [Enqueued(message.id, created=True) for message in outgoing]
        return resolve_conflicts(
            connection,
            clock,
            outgoing,
            on_conflict,
            insert_again=lambda some: _insert_chunk(connection, clock, some),
        )

    try:
        if _is_one_statement(outgoing):
            # Without a transaction of its own: alone it commits itself, inside one of
            # the caller's it belongs to that.
            return work(connection)
        return in_transition(alias, work)
    except Error as error:
        if connection.in_atomic_block or not is_connection_lost(error):
            raise
        raise EnqueueOutcomeUnknown(outgoing, type(error).__name__) from error


def _is_one_statement(outgoing: Sequence[Outgoing]) -> bool:
    first = outgoing[0].terms
    return (
        first.unique_key is None
        and len(outgoing) <= ROWS_PER_STATEMENT
        and all(message.terms is first for message in outgoing)
    )


def _chunks(outgoing: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """Runs of messages that share their terms, of at most a statement's size."""
    for _, run in groupby(outgoing, key=lambda message: id(message.terms)):
        members = list(run)
        for start in range(0, len(members), ROWS_PER_STATEMENT):
            yield members[start : start + ROWS_PER_STATEMENT]


def _insert_chunk(
    connection: BaseDatabaseWrapper, clock: StoreClock, chunk: Sequence[Outgoing]
) -> bool:
    """Insert messages of the same terms; whether every one of them was new."""
    if connection.vendor == "postgresql" and len(chunk) > 1:
        sql, params = _from_arrays(connection, clock, chunk)
    else:
        sql, params = _from_values(connection, clock, chunk)
    with connection.cursor() as cursor:
        try:
            cursor.execute(sql, params)
        except IntegrityError:
            # InnoDB undoes the statement only. It has no way to skip a duplicate that
            # does not also hide other errors, so the conflict is told from the error.
            if connection.vendor != "mysql":
                raise
            return False
        return cursor.rowcount == len(chunk)


def _from_values(
    connection: BaseDatabaseWrapper, clock: StoreClock, chunk: Sequence[Outgoing]
) -> tuple[str, list[Any]]:
    shared = _shared_columns(connection, chunk[0].terms)
    state, due = _state_and_due(connection, clock, chunk[0].terms)
    columns = ("id", "body", "signature", "key_id", *shared)
    row = f"({', '.join(['%s'] * len(columns))}, {state}, {due})"
    values = shared.values()
    compact = not connection.features.has_native_uuid_field
    params: list[Any] = []
    for message in chunk:
        identifier = message.id.replace("-", "") if compact else message.id
        params += (identifier, message.body, message.signature, message.key_id, *values)
    rows = ", ".join([row] * len(chunk))
    return f"{_head(connection, columns)} VALUES {rows}{_tail(connection)}", params


def _from_arrays(
    connection: BaseDatabaseWrapper, clock: StoreClock, chunk: Sequence[Outgoing]
) -> tuple[str, list[Any]]:
    """PostgreSQL reads a thousand rows faster from three arrays than from VALUES.

    The arrays are written as text here: ids and signatures are hex, and a body is ASCII
    with two characters to escape.
    """
    shared = _shared_columns(connection, chunk[0].terms)
    state, due = _state_and_due(connection, clock, chunk[0].terms)
    columns = ("id", "body", "signature", "key_id", *shared)
    constants = ", ".join(["%s"] * (len(shared) + 1))
    bodies = "\x00".join([message.body for message in chunk])
    escaped = bodies.replace("\\", "\\\\").replace('"', '\\"').replace("\x00", '","')
    params = [
        chunk[0].key_id,
        *shared.values(),
        "{" + ",".join([message.id for message in chunk]) + "}",
        '{"' + escaped + '"}',
        "{" + ",".join([message.signature for message in chunk]) + "}",
    ]
    return (
        f"{_head(connection, columns)} "
        f"SELECT id, body, signature, {constants}, {state}, {due} "
        "FROM unnest(%s::uuid[], %s::text[], %s::text[]) AS sealed(id, body, signature)"
        f"{_tail(connection)}",
        params,
    )


def _head(connection: BaseDatabaseWrapper, columns: Iterable[str]) -> str:
    quoted = ", ".join(f'{connection.ops.quote_name(name)}' for name in (*columns, "state", "due"))
    return f"INSERT INTO {connection.ops.quote_name(Job._meta.db_table)} ({quoted})"


def _tail(connection: BaseDatabaseWrapper) -> str:
    return "" if connection.vendor == "mysql" else " ON CONFLICT DO NOTHING"


def _shared_columns(connection: BaseDatabaseWrapper, terms: Terms) -> dict[str, Any]:
    """Columns that are the same for every job of these terms, as database values."""
    index = index_of("", terms)
    del index["id"]
    shared = {name: value for name, value in index.items() if value not in {None, ""}}
    if terms.replay_of is not None:
        native = connection.features.has_native_uuid_field
        shared["replay_of"] = terms.replay_of if native else terms.replay_of.replace("-", "")
    if terms.meta is not None:
        shared["meta"] = json.dumps(terms.meta)
    shared["created_at"] = _CREATED_AT.get_db_prep_value(timezone.now(), connection)
    return shared


def _state_and_due(
    connection: BaseDatabaseWrapper, clock: StoreClock, terms: Terms
) -> tuple[str, str]:
    now = clock.sql(connection.vendor)
    if terms.schedule is not None:
        due = int(terms.schedule)
        scheduled, ready = int(JobState.SCHEDULED), int(JobState.READY)
        return f"CASE WHEN {due} > {now} THEN {scheduled} ELSE {ready} END", str(due)
    if terms.delay:
        return str(int(JobState.SCHEDULED)), f"{now} + {to_microseconds(terms.delay)}"
    return str(int(JobState.READY)), now
