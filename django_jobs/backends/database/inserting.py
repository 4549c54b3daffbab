"""Enqueue: one INSERT that is a no-op for what is there already.

Every statement names its columns, so that a release that knows fewer of them can write
to a table that has more. Columns that a job says nothing about are left to the
database's defaults.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from django.db import Error, IntegrityError, connections

from django_jobs.backends.base import Enqueued, OnConflict
from django_jobs.backends.database.reading import ended_among
from django_jobs.backends.database.statements import Statement
from django_jobs.backends.database.unique import remove, resolve_conflicts, signatures_of
from django_jobs.db.transactions import (
    in_statement,
    in_transition,
    is_conflict,
    is_connection_lost,
)
from django_jobs.exceptions import EnqueueOutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.db.clock import StoreClock
    from django_jobs.wire.envelope import Outgoing, Terms

T = TypeVar("T")

ROWS_PER_STATEMENT = 1000
# MariaDB takes statements of 16 MB unless told otherwise, and escaping can double a body.
BYTES_PER_STATEMENT = 4 * 1024 * 1024
_REMEMBERED = 256
_NOT_ALONE = (
    "This enqueue belongs to a transaction on {alias!r}, and another process committed what it "
    "met there: the same job, or one with its unique_key. Run that whole transaction again; see "
    "'Stricter isolation levels' in django_jobs' guide to transactions."
)


class _SomethingInTheWay(Exception):
    """Rolls back what was stored beside a conflict, so that what is new can be told."""


class Inserter:
    """Stores messages in the Job table of one database alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._statements: dict[int, Statement] = {}

    def insert(
        self, clock: StoreClock, outgoing: Sequence[Outgoing], on_conflict: OnConflict
    ) -> list[Enqueued]:
        """Store messages; see ``Backend.enqueue``."""
        with self._told_if_unknown(outgoing):
            if self._all_new(clock, outgoing):
                return [Enqueued(message.id, True) for message in outgoing]  # noqa: FBT003 - a tuple's field
            return in_transition(
                self.alias,
                lambda connection: self._among_others(connection, clock, outgoing, on_conflict),
            )

    def insert_unless_ended(
        self,
        clock: StoreClock,
        backend: str,
        outgoing: Sequence[Outgoing],
        on_conflict: OnConflict = OnConflict.RETURN,
    ) -> list[Enqueued]:
        """Store messages, but for those that have ended; see ``Backend.push``."""

        def over(some: Iterable[Outgoing]) -> set[str]:
            return ended_among(self.alias, backend, [message.id for message in some])

        def work(connection: BaseDatabaseWrapper) -> list[Enqueued]:
            # A job that has ended takes nobody's key, not for the moment either.
            keyed = over(message for message in outgoing if message.terms.unique_key is not None)
            left = [message for message in outgoing if message.id not in keyed]
            answers = iter(
                self._among_others(connection, clock, left, on_conflict, over=over) if left else ()
            )
            stored = [
                Enqueued(message.id, created=False) if message.id in keyed else next(answers)
                for message in outgoing
            ]
            # In this order: an insert waits for a settle that is about to end the same job,
            # and what that settle left is then to be seen. All are asked for: where an insert
            # does not tell what it stored, one that lived a moment ago may be stored anew.
            late = over(left)
            remove(self.alias, late)
            return [Enqueued(one.id, one.created and one.id not in late) for one in stored]

        with self._told_if_unknown(outgoing):
            return in_transition(self.alias, work, sees_commits=True)

    def as_one(self, work: Callable[[], T]) -> T:
        """Insert part after part in one transaction; see ``Backend.as_one``."""
        with self._told_if_unknown(()):
            return in_transition(self.alias, lambda _: work(), sees_commits=True)

    @contextmanager
    def _told_if_unknown(self, outgoing: Sequence[Outgoing]) -> Iterator[None]:
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

    def _all_new(self, clock: StoreClock, outgoing: Sequence[Outgoing]) -> bool:
        """Store messages that find nothing in their way; else store none of them."""
        if len(outgoing) == 1:
            return in_statement(self.alias, lambda c: self._chunk(c, clock, outgoing))

        def work(connection: BaseDatabaseWrapper) -> None:
            for chunk in _chunks(outgoing):
                if not self._chunk(connection, clock, chunk):
                    raise _SomethingInTheWay

        try:
            in_transition(self.alias, work)
        except _SomethingInTheWay:
            return False
        return True

    def _among_others(
        self,
        connection: BaseDatabaseWrapper,
        clock: StoreClock,
        outgoing: Sequence[Outgoing],
        on_conflict: OnConflict,
        *,
        over: Callable[[Sequence[Outgoing]], set[str]] = lambda _: set(),
    ) -> list[Enqueued]:
        known = signatures_of(connection, outgoing)
        for chunk in _chunks(outgoing):
            self._chunk(connection, clock, chunk)
        return resolve_conflicts(
            connection,
            clock,
            outgoing,
            on_conflict,
            known=known,
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
                # InnoDB undoes the statement only. It has no way to skip a duplicate that
                # does not also hide other errors, so the conflict is told from the error.
                if connection.vendor != "mysql":
                    raise
                return False
            return bool(cursor.rowcount == len(chunk))

    def _statement(self, connection: BaseDatabaseWrapper, terms: Terms) -> Statement:
        """The statement for these terms, made once. Keyed by identity: it holds them alive."""
        known = self._statements.get(id(terms))
        if known is None:
            if len(self._statements) >= _REMEMBERED:
                self._statements = {}
            known = self._statements[id(terms)] = Statement(connection, terms)
        return known


def _shape(message: Outgoing) -> tuple[int, str]:
    return id(message.terms), message.key_id


def _chunks(outgoing: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Runs of messages that share their terms and key, of at most a statement's size."""
    if len(outgoing) == 1:
        yield outgoing
        return
    for _, run in groupby(outgoing, key=_shape):
        yield from statements_of(run)


def statements_of(outgoing: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """Messages as one statement after the other can take them."""
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
