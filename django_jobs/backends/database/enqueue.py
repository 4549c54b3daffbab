"""Enqueue: an INSERT that leaves existing jobs alone, and what is done about conflicts.

Every statement names its columns, so that an older release can write to a table that has
more of them. Columns for which a job has no value get the database's defaults.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import Error, IntegrityError, connections
from django.utils import timezone

from django_jobs.backends.base import Enqueued, OnConflict
from django_jobs.backends.database.cancel import remove_waiting
from django_jobs.backends.database.read import ended_among
from django_jobs.clock import to_microseconds
from django_jobs.db.arrays import plain_array, quoted_array
from django_jobs.db.transactions import (
    in_statement,
    in_transition,
    is_conflict,
    is_connection_lost,
)
from django_jobs.exceptions import DuplicateJob, EnqueueOutcomeUnknown, JobsError
from django_jobs.ids import parse_id
from django_jobs.models import Job, JobState
from django_jobs.wire.envelope import index_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.db.clock import StoreClock
    from django_jobs.wire.envelope import Outgoing, Terms

# ------------------------------------------------------------------------ the statement

_SEALED = ("id", "body", "signature")
_CREATED_AT = Job._meta.get_field("created_at")
_SCHEDULED, _READY = int(JobState.SCHEDULED), int(JobState.READY)


class Statement:
    """An INSERT into the Job table for messages of the same terms, prepared once.

    On PostgreSQL the shared values are literals in its text, and only ids, bodies and signatures
    are parameters. That saves a single job some ten microseconds of the client's work.
    """

    def __init__(self, connection: BaseDatabaseWrapper, terms: Terms) -> None:
        self.terms = terms
        self._vendor = connection.vendor
        self._native_ids = connection.features.has_native_uuid_field
        shared = _shared_columns(connection, terms)
        quote = connection.ops.quote_name
        columns = (*_SEALED, "key_id", *shared, "created_at", "state", "due")
        names = ", ".join(quote(name) for name in columns)
        self._head = f"INSERT INTO {quote(Job._meta.db_table)} ({names})"
        # MariaDB and MySQL have no such clause; see Inserter._chunk.
        self._tail = "" if self._vendor == "mysql" else " ON CONFLICT DO NOTHING"
        if self._vendor == "postgresql":
            self._params: list[Any] = []
            self._shared = "".join(f", {_literal(value)}" for value in shared.values())
        else:
            self._params = list(shared.values())
            self._shared = ", %s" * len(shared)

    def compiled(
        self, connection: BaseDatabaseWrapper, now: str, chunk: Sequence[Outgoing]
    ) -> tuple[str, list[Any]]:
        """SQL and parameters to insert a chunk when the store's clock says ``now``."""
        state, due = self._state_and_due(now)
        key_id = chunk[0].key_id
        if self._vendor != "postgresql":
            created_at = _CREATED_AT.get_db_prep_value(timezone.now(), connection)
            alike = f"%s{self._shared}, %s, {state}, {due}"
            return self._from_values(chunk, alike, key_id, *self._params, created_at)
        alike = f"{_literal(key_id)}{self._shared}, clock_timestamp(), {state}, {due}"
        if len(chunk) == 1:
            return self._from_values(chunk, alike)
        return self._from_arrays(chunk, alike)

    def _from_values(
        self, chunk: Sequence[Outgoing], alike: str, *shared: Any
    ) -> tuple[str, list[Any]]:
        row = f"(%s, %s, %s, {alike})"
        params: list[Any] = []
        for message in chunk:
            identifier = message.id if self._native_ids else message.id.replace("-", "")
            params += (identifier, message.body, message.signature, *shared)
        return f"{self._head} VALUES {', '.join([row] * len(chunk))}{self._tail}", params

    def _from_arrays(self, chunk: Sequence[Outgoing], alike: str) -> tuple[str, list[Any]]:
        """PostgreSQL reads a thousand rows faster from three arrays than from VALUES."""
        sql = (
            f"{self._head} SELECT id, body, signature, {alike} "  # noqa: S608 - literals are quoted, values are parameters
            "FROM unnest(%s::uuid[], %s::text[], %s::text[]) AS sealed(id, body, signature)"
            f"{self._tail}"
        )
        return sql, [
            plain_array([message.id for message in chunk]),
            quoted_array([message.body for message in chunk]),
            plain_array([message.signature for message in chunk]),
        ]

    def _state_and_due(self, now: str) -> tuple[str, str]:
        terms = self.terms
        if terms.schedule is not None:
            due = int(terms.schedule)
            return f"CASE WHEN {due} > {now} THEN {_SCHEDULED} ELSE {_READY} END", str(due)
        if terms.delay:
            return str(_SCHEDULED), f"{now} + {to_microseconds(terms.delay)}"
        return str(_READY), now


def _shared_columns(connection: BaseDatabaseWrapper, terms: Terms) -> dict[str, Any]:
    """Columns that are the same for every job of these terms, as database values."""
    index = index_of("", terms)
    del index["id"]
    shared = {name: value for name, value in index.items() if value not in {None, ""}}
    if terms.replay_of is not None and not connection.features.has_native_uuid_field:
        shared["replay_of"] = terms.replay_of.replace("-", "")
    if terms.meta is not None:
        shared["meta"] = json.dumps(terms.meta)
    return shared


def _literal(value: str | int) -> str:
    r"""A value as PostgreSQL reads it in a statement's text, whatever its string settings.

    In an escape string the backslash and the quote are special, and each is doubled:
    ``standard_conforming_strings`` has no effect here, and ``backslash_quote`` may forbid
    ``\\'``. The percent sign is doubled for the driver, which looks for its parameters in the
    same text.
    """
    if isinstance(value, int):
        return str(int(value))
    escaped = value.replace("\\", "\\\\").replace("'", "''").replace("%", "%%")
    return f"E'{escaped}'"


# A holder may end between our insert and our look; then the insert is tried again.
_TRIES = 20
_IDS_PER_QUERY = 1000


def resolve_conflicts(
    connection: BaseDatabaseWrapper,
    clock: StoreClock,
    outgoing: Sequence[Outgoing],
    on_conflict: OnConflict,
    *,
    existing: Iterable[str],
    over: Callable[[Sequence[Outgoing]], set[str]],
    insert_again: Callable[[Sequence[Outgoing]], bool],
) -> list[Enqueued]:
    """Decide about one message at a time after an insert that met a conflict.

    A message whose id exists was enqueued before and is left alone. A message whose ``unique_key``
    another live job holds follows its ``on_conflict``.

    ``existing``: the ids that were there before the insert. ``over``: returns the ids of those
    messages whose jobs have ended; they replace no other job.
    """
    stored = signatures_of(connection, outgoing)
    new = set(stored).difference(existing)
    answers = []
    for message in outgoing:
        if message.id in stored:
            # Two messages of a batch may share an id, or another process may have been faster.
            created = message.id in new and stored[message.id] == message.signature
            new.discard(message.id)
            answers.append(Enqueued(message.id, created))
        else:
            answers.append(
                _resolve_conflict(connection, clock, message, on_conflict, over, insert_again)
            )
    return answers


def signatures_of(connection: BaseDatabaseWrapper, outgoing: Sequence[Outgoing]) -> dict[str, str]:
    """The signatures of those messages that are stored, by id."""
    jobs = Job.objects.using(connection.alias)
    signatures: dict[str, str] = {}
    for start in range(0, len(outgoing), _IDS_PER_QUERY):
        ids = [message.id for message in outgoing[start : start + _IDS_PER_QUERY]]
        rows = jobs.filter(pk__in=ids).values_list("pk", "signature")
        signatures.update((str(pk), signature) for pk, signature in rows)
    return signatures


def _resolve_conflict(
    connection: BaseDatabaseWrapper,
    clock: StoreClock,
    message: Outgoing,
    on_conflict: OnConflict,
    over: Callable[[Sequence[Outgoing]], set[str]],
    insert_again: Callable[[Sequence[Outgoing]], bool],
) -> Enqueued:
    for _ in range(_TRIES):
        if insert_again([message]):
            return Enqueued(message.id, created=True)
        holder = _holder(connection, message)
        if holder is None:
            continue
        if holder == message.id or over([message]):
            return Enqueued(message.id, created=False)
        if on_conflict is OnConflict.RETURN:
            return Enqueued(holder, created=False)
        replaceable = on_conflict is OnConflict.REPLACE
        if not replaceable or not remove_waiting(
            connection.alias, clock, holder, f"replaced by {message.id}"
        ):
            raise DuplicateJob(message.terms.unique_key or "", holder)
    raise JobsError(f"the unique_key {message.terms.unique_key!r} changes hands too quickly")


def _holder(connection: BaseDatabaseWrapper, message: Outgoing) -> str | None:
    """The id of the live job that a message conflicts with."""
    key = message.terms.unique
    by_key = None if key is None else _committed(connection, "unique_key", key)
    return by_key or _committed(connection, "id", message.id)


def _committed(connection: BaseDatabaseWrapper, column: str, value: str) -> str | None:
    """The id of the job with this value, as it was committed last.

    With REPEATABLE READ a transaction of the caller reads an old snapshot. On MariaDB only a
    locking read sees what the insert conflicted with; the insert holds that lock already. It is
    a shared lock on an index entry, so the job's row stays free.
    """
    quote = connection.ops.quote_name
    locking = " LOCK IN SHARE MODE" if connection.vendor == "mysql" else ""
    field: Any = Job._meta.get_field(column)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {quote('id')} FROM {quote(Job._meta.db_table)} "  # noqa: S608 - our own names
            f"WHERE {quote(column)} = %s{locking}",
            [field.get_db_prep_value(value, connection)],
        )
        row = cursor.fetchone()
    return parse_id(row[0]) if row else None


def remove(alias: str, ids: Iterable[str]) -> None:
    """Delete jobs that this transaction has stored."""
    doomed = list(ids)
    for start in range(0, len(doomed), _IDS_PER_QUERY):
        some = Job.objects.using(alias).filter(pk__in=doomed[start : start + _IDS_PER_QUERY])
        some._raw_delete(alias)  # noqa: SLF001 - no signals, no collector


T = TypeVar("T")

ROWS_PER_STATEMENT = 1000
# MariaDB accepts statements of 16 MB by default, and escaping can double a body.
BYTES_PER_STATEMENT = 4 * 1024 * 1024
_REMEMBERED = 256
_NOT_ALONE = (
    "This enqueue belongs to a transaction on {alias!r}, and another process committed what it "
    "met there: the same job, or one with its unique_key. Run that whole transaction again; see "
    "'Stricter isolation levels' in django_jobs' guide to transactions."
)


class _ConflictFound(Exception):
    """Rolls back the messages stored beside a conflict, to start over one by one."""


class Inserter:
    """Stores messages in the Job table of one database alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._statements: dict[int, Statement] = {}

    def insert(
        self, clock: StoreClock, outgoing: Sequence[Outgoing], on_conflict: OnConflict
    ) -> list[Enqueued]:
        """Store messages; see ``Backend.enqueue``."""
        with self._explaining_errors(outgoing):
            if self._insert_all_new(clock, outgoing):
                return [Enqueued(message.id, True) for message in outgoing]  # noqa: FBT003 - a tuple's field
            return in_transition(
                self.alias,
                lambda connection: self._insert_past_conflicts(
                    connection, clock, outgoing, on_conflict
                ),
            )

    def insert_unless_ended(
        self,
        clock: StoreClock,
        backend: str,
        outgoing: Sequence[Outgoing],
        on_conflict: OnConflict = OnConflict.RETURN,
    ) -> list[Enqueued]:
        """Store messages except those that have ended; see ``RemembersEnded.push``."""

        def over(some: Iterable[Outgoing]) -> set[str]:
            return ended_among(self.alias, backend, [message.id for message in some])

        def work(connection: BaseDatabaseWrapper) -> list[Enqueued]:
            # A job that has ended must not take a key, not even for a moment.
            keyed = over(message for message in outgoing if message.terms.unique_key is not None)
            left = [message for message in outgoing if message.id not in keyed]
            answers = iter(
                self._insert_past_conflicts(connection, clock, left, on_conflict, over=over)
                if left
                else ()
            )
            stored = [
                Enqueued(message.id, created=False) if message.id in keyed else next(answers)
                for message in outgoing
            ]
            # In this order: the insert waits for a settle that is about to end the same job, and
            # then sees what that settle left. All ids are looked up: where an insert does not say
            # which rows it stored, a job that lived a moment ago may have been stored again.
            late = over(left)
            remove(self.alias, late)
            return [Enqueued(job.id, job.created and job.id not in late) for job in stored]

        with self._explaining_errors(outgoing):
            return in_transition(self.alias, work, sees_commits=True)

    def as_one(self, work: Callable[[], T]) -> T:
        """Insert part after part in one transaction; see ``SharesTransactions.as_one``."""
        with self._explaining_errors(()):
            return in_transition(self.alias, lambda _: work(), sees_commits=True)

    @contextmanager
    def _explaining_errors(self, outgoing: Sequence[Outgoing]) -> Iterator[None]:
        """Raise EnqueueOutcomeUnknown for a lost connection, and note how to avoid a conflict."""
        try:
            yield
        except Error as error:
            if connections[self.alias].in_atomic_block:
                if is_conflict(error):
                    error.add_note(_NOT_ALONE.format(alias=self.alias))
                raise
            if not is_connection_lost(error):
                raise
            raise EnqueueOutcomeUnknown(outgoing, type(error).__name__) from error

    def _insert_all_new(self, clock: StoreClock, outgoing: Sequence[Outgoing]) -> bool:
        """Store all messages if none conflicts with a stored job; otherwise store none."""
        if len(outgoing) == 1:
            return in_statement(self.alias, lambda c: self._chunk(c, clock, outgoing))

        def work(connection: BaseDatabaseWrapper) -> None:
            for chunk in _chunks(outgoing):
                if not self._chunk(connection, clock, chunk):
                    raise _ConflictFound

        try:
            in_transition(self.alias, work)
        except _ConflictFound:
            return False
        return True

    def _insert_past_conflicts(
        self,
        connection: BaseDatabaseWrapper,
        clock: StoreClock,
        outgoing: Sequence[Outgoing],
        on_conflict: OnConflict,
        *,
        over: Callable[[Sequence[Outgoing]], set[str]] = lambda _: set(),
    ) -> list[Enqueued]:
        existing = signatures_of(connection, outgoing)
        for chunk in _chunks(outgoing):
            self._chunk(connection, clock, chunk)
        return resolve_conflicts(
            connection,
            clock,
            outgoing,
            on_conflict,
            existing=existing,
            over=over,
            insert_again=lambda some: self._chunk(connection, clock, some),
        )

    def _chunk(
        self, connection: BaseDatabaseWrapper, clock: StoreClock, chunk: Sequence[Outgoing]
    ) -> bool:
        """Insert messages of the same terms; whether every one of them was new."""
        statement = self._statement(connection, chunk[0].terms)
        sql, params = statement.compiled(connection, clock.sql(connection.vendor), chunk)
        with connection.cursor() as cursor:
            try:
                cursor.execute(sql, params)
            except IntegrityError:
                # InnoDB rolls back the statement only. It cannot skip duplicates without hiding
                # other errors as well, so the error itself tells of the conflict.
                if connection.vendor != "mysql":
                    raise
                return False
            return bool(cursor.rowcount == len(chunk))

    def _statement(self, connection: BaseDatabaseWrapper, terms: Terms) -> Statement:
        """The statement for these terms, made once. Keyed by identity: it holds them alive."""
        statement = self._statements.get(id(terms))
        if statement is None:
            if len(self._statements) >= _REMEMBERED:
                self._statements = {}
            statement = self._statements[id(terms)] = Statement(connection, terms)
        return statement


def _shape(message: Outgoing) -> tuple[int, str]:
    return id(message.terms), message.key_id


def _chunks(outgoing: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Runs of messages with the same terms and signing key, each small enough for a statement."""
    for _, run in groupby(outgoing, key=_shape):
        yield from statements_of(run)


def statements_of(outgoing: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """Split messages into parts that fit into one statement each."""
    chunk: list[Outgoing] = []
    size = 0
    for message in outgoing:
        size += len(message.body)
        if chunk and (len(chunk) == ROWS_PER_STATEMENT or size > BYTES_PER_STATEMENT):
            yield chunk
            chunk, size = [], len(message.body)
        chunk.append(message)
    if chunk:
        yield chunk
