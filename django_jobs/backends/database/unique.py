"""What an enqueue does about jobs that are there already.

A message whose id is there is left alone: it was enqueued before. A message whose
``unique_key`` is held by another live job follows its ``on_conflict``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_jobs.backends.base import Enqueued, OnConflict
from django_jobs.backends.database.cancelling import remove_waiting
from django_jobs.exceptions import DuplicateJob, JobsError
from django_jobs.ids import parse_id
from django_jobs.models import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.db.clock import StoreClock
    from django_jobs.wire.envelope import Outgoing

# A holder may end between our insert and our look; then the insert is tried again.
_TRIES = 20
_IDS_PER_QUERY = 1000


def resolve_conflicts(
    connection: BaseDatabaseWrapper,
    clock: StoreClock,
    outgoing: Sequence[Outgoing],
    on_conflict: OnConflict,
    *,
    known: Iterable[str],
    over: Callable[[Sequence[Outgoing]], set[str]],
    insert_again: Callable[[Sequence[Outgoing]], bool],
) -> list[Enqueued]:
    """Settle one message at a time where an insert found something in its way.

    ``known``: the ids that were there before the insert. ``over``: the ids of those messages
    whose jobs have ended, so that they get in nobody's way.
    """
    stored = signatures_of(connection, outgoing)
    new = set(stored).difference(known)
    answers = []
    for message in outgoing:
        if message.id in stored:
            # Two in one batch may share their id, and another process may have been faster.
            created = message.id in new and stored[message.id] == message.signature
            new.discard(message.id)
            answers.append(Enqueued(message.id, created))
        else:
            answers.append(_one(connection, clock, message, on_conflict, over, insert_again))
    return answers


def signatures_of(connection: BaseDatabaseWrapper, outgoing: Sequence[Outgoing]) -> dict[str, str]:
    """The signatures of those messages that are there, by id."""
    jobs = Job.objects.using(connection.alias)
    found: dict[str, str] = {}
    for start in range(0, len(outgoing), _IDS_PER_QUERY):
        ids = [message.id for message in outgoing[start : start + _IDS_PER_QUERY]]
        rows = jobs.filter(pk__in=ids).values_list("pk", "signature")
        found.update((str(pk), signature) for pk, signature in rows)
    return found


def _one(
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
    """The id of the live job that is in the way of a message."""
    key = message.terms.unique
    found = None if key is None else _committed(connection, "unique_key", key)
    return found or _committed(connection, "id", message.id)


def _committed(connection: BaseDatabaseWrapper, column: str, value: str) -> str | None:
    """The id of the job with this value, as it was committed last.

    With REPEATABLE READ a transaction of the caller looks at an old snapshot. Only a read
    that locks sees there what was in the way of an insert, which has that lock on MariaDB
    already. It is a shared one of an index that has the id: the job's row stays free.
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
    """Take jobs out again that this transaction has stored."""
    doomed = list(ids)
    for start in range(0, len(doomed), _IDS_PER_QUERY):
        some = Job.objects.using(alias).filter(pk__in=doomed[start : start + _IDS_PER_QUERY])
        some._raw_delete(alias)  # noqa: SLF001 - no signals, no collector
