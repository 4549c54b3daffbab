"""Rows that cannot be read: written by other means, they would make every claim fail again.

When a statement fails, and the database itself is not the cause, its rows are read one by one.
An unreadable row becomes a dead letter made of what is left of it, and a counter that is too
large is cut to its range. As long as all goes well this costs nothing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.db import Error, connections
from django.db.models import (
    BigIntegerField,
    BinaryField,
    BooleanField,
    CharField,
    F,
    IntegerField,
    TextField,
    UUIDField,
)
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from django_jobs.backends.database.keys import COLUMNS, wake
from django_jobs.backends.database.rows import ROW_FIELDS, lease_of
from django_jobs.backends.database.wait import queues_with_endless
from django_jobs.backends.ended_jobs import fingerprint_without_error, fit, id_of_dead
from django_jobs.clock import to_microseconds
from django_jobs.db.clock import for_people
from django_jobs.db.dead_letters import add_dead_letter
from django_jobs.db.transactions import in_reading, in_transition, is_refusal
from django_jobs.models import FailedJob, Job, JobState
from django_jobs.telemetry import events
from django_jobs.wire.envelope import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet

    from django_jobs.db.clock import StoreClock

T = TypeVar("T")

REASON, ERROR_TYPE = "rejected-malformed", "CorruptEntry"
_CENTURY_SECONDS = 3_200_000_000
_RAW_COLUMNS = (*ROW_FIELDS[: ROW_FIELDS.index("due")],)


class Rows(NamedTuple):
    """The rows that a statement reads, in its order, up to a limit."""

    jobs: QuerySet[Job]
    limit: int


def is_of_a_row(error: Exception) -> bool:
    """Whether a row may be the cause, rather than the database or the connection to it."""
    return is_refusal(error) if isinstance(error, Error) else not isinstance(error, OSError)


def past_unreadable(
    alias: str, clock: StoreClock, work: Callable[[], T], met: Callable[[], Iterable[Rows]]
) -> T:
    """Do some work; if a row makes it fail, move that row away and try again.

    ``met``: returns the rows that the work reads.
    """
    while True:
        try:
            return work()
        except Exception as error:
            if not (is_of_a_row(error) and any(_put_away(alias, clock, x) for x in met())):
                raise


def readable(rows: Rows, fields: Sequence[str], of: Callable[[Any], T]) -> list[T]:
    """The objects that ``of`` makes of rows, without the rows that cannot be read."""

    def read(jobs: QuerySet[Job]) -> list[T]:
        return [of(row) for row in jobs.values_list(*fields)]

    try:
        return read(rows.jobs[: rows.limit])
    except Exception as error:
        if not is_of_a_row(error):
            raise
    results: list[T] = []
    for address in _addresses(rows):
        try:
            results += read(_at(rows.jobs, [address]))
        except Exception as error:
            if not is_of_a_row(error):
                raise
    return results


def of_known_kinds(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Jobs whose columns have the right types: SQLite stores any type in any column."""
    if connections[jobs.db].vendor != "sqlite":
        return jobs
    return jobs.filter(RawSQL(_known_kinds(), (), BooleanField()))  # noqa: S611 - names of our columns


@cache
def _known_kinds() -> str:
    conditions = []
    for field in Job._meta.concrete_fields:
        column = f'"{Job._meta.db_table}"."{field.column}"'
        kinds = "integer" if isinstance(field, IntegerField | BooleanField) else "text"
        condition = f"typeof({column}) = '{kinds}'"
        if isinstance(field, UUIDField):
            condition += f" AND length({column}) = 32 AND {column} NOT GLOB '*[^0-9a-f]*'"
        conditions.append(f"({condition} OR {column} IS NULL)" if field.null else f"({condition})")
    return f"({' AND '.join(conditions)})"


def end_endless(alias: str, clock: StoreClock, limit: int) -> int:
    """Expire leases that would never end, so that their jobs are reaped; return how many."""
    running = Job.objects.using(alias).filter(state=JobState.RUNNING)
    far = running.filter(lease_expires__gt=clock.now() + to_microseconds(_CENTURY_SECONDS))
    # MariaDB and MySQL have no index of running jobs alone, and waiting jobs have no end either.
    endless = running.filter(lease_expires=None)
    apart = connections[alias].vendor == "mysql"
    names = queues_with_endless(alias) if apart else ()
    some = [endless.filter(queue=name) for name in names] if apart else [endless]
    ended = 0
    for rows in (far, *some):
        if addresses := in_reading(alias, lambda: _addresses(Rows(rows, limit))):  # noqa: B023 - called at once
            still = _at(rows, addresses)
            ended += in_transition(alias, lambda _: still.update(lease_expires=clock.now()))  # noqa: B023 - called at once
    return ended


def _put_away(alias: str, clock: StoreClock, rows: Rows) -> int:
    """Make dead letters of unreadable rows and repair too large counters; return how many."""
    letters: list[FailedJob] = []
    keys: set[str] = set()

    def work(connection: BaseDatabaseWrapper) -> int:
        letters.clear()
        skips = connection.features.has_select_for_update_skip_locked
        addresses = _addresses(Rows(rows.jobs.select_for_update(skip_locked=skips), rows.limit))
        jobs = Job.objects.using(alias)
        for address, error in _unreadable(jobs, addresses):
            raw = _raw(_at(jobs, [address]), connection)
            dead = _dead_letter(raw, error, for_people(clock.read(connection)))
            add_dead_letter(alias, dead)
            _at(jobs, [address])._raw_delete(alias)  # noqa: SLF001 - no signals, no collector
            keys.update(key for name in COLUMNS if (key := raw[name]))
            letters.append(dead)
        full = _at(jobs, addresses).filter(deliveries__gt=FULL)
        return len(letters) + full.update(deliveries=FULL)

    changed = in_transition(alias, work)
    wake(alias, clock, keys)
    for dead in letters:
        events.emit(
            events.JobDied(
                job_id=str(dead.job_id),
                queue=dead.queue,
                handler=dead.handler,
                reason=dead.reason,
                error_type=dead.error_type,
                error_message=dead.error_message,
            )
        )
    return changed


def _unreadable(jobs: QuerySet[Job], addresses: Sequence[Any]) -> list[tuple[Any, Exception]]:
    """The rows that no claim could read, each with its error; found by halving."""
    if not addresses:
        return []
    try:
        _read(_at(jobs, addresses))
    except Exception as error:
        if not is_of_a_row(error):
            raise
        if len(addresses) == 1:
            return [(addresses[0], error)]
        half = len(addresses) // 2
        return [*_unreadable(jobs, addresses[:half]), *_unreadable(jobs, addresses[half:])]
    return []


def _read(jobs: QuerySet[Job]) -> None:
    """Raise if rows cannot be read, or cannot be found again by the id that was read."""
    for row in jobs.values_list(*ROW_FIELDS):
        lease_of(row, token="", expires_at=0)
    if not connections[jobs.db].features.has_native_uuid_field:
        stored = RawSQL(_quoted_id(jobs.db), (), CharField())  # noqa: S611 - a column
        for key, written in jobs.annotate(written=stored).values_list("pk", "written"):
            if key.hex != written:
                raise ValueError(f"its id is written as {written!r}")


def _addresses(rows: Rows) -> list[Any]:
    """Identifiers of rows that work whatever the rows contain."""
    return list(_addressed(rows.jobs).values_list("address", flat=True)[: rows.limit])


def _at(jobs: QuerySet[Job], addresses: Sequence[Any]) -> QuerySet[Any]:
    return _addressed(jobs).filter(address__in=addresses)


def _addressed(jobs: QuerySet[Job]) -> QuerySet[Any]:
    connection = connections[jobs.db]
    if connection.features.has_native_uuid_field:
        return jobs.annotate(address=F("pk"))
    rowid = ("rowid", BigIntegerField())
    column, kind = rowid if connection.vendor == "sqlite" else (_quoted_id(jobs.db), CharField())
    return jobs.annotate(address=RawSQL(column, (), kind))  # noqa: S611 - a column


def _quoted_id(alias: str) -> str:
    return connections[alias].ops.quote_name("id")


def _raw(job: QuerySet[Job], connection: BaseDatabaseWrapper) -> dict[str, str | None]:
    """The columns of a row as text."""
    kind = BinaryField() if connection.vendor == "sqlite" else TextField()
    texts = {f"raw_{name}": Cast(name, kind) for name in _RAW_COLUMNS}
    (row,) = job.annotate(**texts).values_list(*texts)
    return dict(zip(_RAW_COLUMNS, map(_text, row), strict=True))


def _text(value: str | bytes | None) -> str | None:
    return bytes(value).decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _dead_letter(raw: dict[str, str | None], error: Exception, now: Any) -> FailedJob:
    """A dead letter made of what can be read of a row."""
    handler = raw["handler"] or ""
    dead = FailedJob(
        backend=raw["backend"] or "",
        job_id=id_of_dead(raw["id"] or ""),
        queue=raw["queue"] or "",
        handler=handler,
        name=raw["name"] or "",
        rank=_whole(raw["rank"], -100, 100),
        body=raw["body"] or "",
        signature=raw["signature"] or "",
        key_id=raw["key_id"] or "",
        attempts=_whole(raw["attempts"], 0, FULL),
        deliveries=_whole(raw["deliveries"], 0, FULL),
        crashes=_whole(raw["crashes"], 0, FULL),
        trace_id=raw["trace_id"],
        tenant=raw["tenant"],
        replay_of=raw["replay_of"],
        reason=REASON,
        error_type=ERROR_TYPE,
        error_message=f"the row {raw['id']!r} of {Job._meta.db_table} cannot be read: "
        f"{type(error).__name__}: {str(error)[:200]}",
        fingerprint=fingerprint_without_error(handler, REASON),
        failed_at=now,
    )
    fit(dead)
    return dead


def _whole(text: str | None, least: int, most: int) -> int:
    try:
        return min(max(int(text or ""), least), most)
    except ValueError:
        return 0
