"""How many jobs each queue holds, at a price that does not grow with their number.

Counting stops at the limit that the caller gives. The backend of a job is in no index: it is read
from the first jobs of a queue only, and where a single backend keeps its jobs in the database,
the others are taken to be of the same one.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections, transaction

from django_jobs.backends.database.wait import text_of
from django_jobs.conf import get_settings
from django_jobs.db.transactions import in_reading
from django_jobs.ids import parse_id
from django_jobs.models import FailedJob, Job, JobState
from django_jobs.routers import database_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

LOOKED_AT = 100
MIXED_AT_MOST = 1_000  # reads whole rows, which is slow when they are not cached
COMPILED_FROM = 100_000
WHOLE_AT_MOST = 10_000
PARTS_AT_ONCE = 100  # SQLite takes 500 in one statement
_GREATEST_RANK = 32_767  # on SQLite, anything that is no number sorts after it

_ALL_NAMES = (
    "SELECT MIN({queue}) FROM {job} UNION ALL SELECT (SELECT MIN({queue}) FROM {job} "
    "WHERE {queue} > names.name) FROM names WHERE names.name IS NOT NULL"
)
_BANDS_BY_STEPS = (
    "WITH RECURSIVE names (name) AS ({names}), bands (queue, state, place) AS ("
    "SELECT names.name, states.state, (SELECT MIN({rank}) FROM {job} "
    "WHERE {queue} = names.name AND {state} = states.state) "
    "FROM names CROSS JOIN ({states}) AS states WHERE names.name IS NOT NULL UNION ALL "
    "SELECT bands.queue, bands.state, (SELECT MIN({rank}) FROM {job} WHERE {queue} = bands.queue "
    "AND {state} = bands.state AND {rank} > bands.place AND {rank} <= {greatest}) "
    "FROM bands WHERE bands.place IS NOT NULL) "
    "SELECT {its_queue}, bands.state, {its_rank}, (SELECT {first_due} FROM {job} "
    "WHERE {queue} = bands.queue AND {state} = bands.state AND {rank} = bands.place) "
    "FROM bands WHERE bands.place IS NOT NULL"
)
# MariaDB and MySQL do a loose scan for GROUP BY; a subquery they would read from its start.
_BANDS_BY_GROUPS = (
    "SELECT {queue}, {state}, {rank}, MIN({due}) FROM {job}{these} "
    "GROUP BY {queue}, {state}, {rank}"
)
_COUNT = (
    "SELECT {place}, (SELECT COUNT(*) FROM (SELECT 1 AS one FROM {job}{in_turn} "
    "WHERE {queue} = %s AND {state} = {of_state} ORDER BY {rank}, {due}, {id} LIMIT {limit}) "
    "AS counted), {first_backend}, {last_backend} "
    "FROM (SELECT {backend} FROM {job}{in_turn} WHERE {queue} = %s AND {state} = {of_state} "
    "ORDER BY {rank}, {due}, {id} LIMIT {looked_at}) AS seen"
)
_BY_BACKEND = (
    "SELECT {place}, {its_backend}, COUNT(*), {first_due} FROM (SELECT {backend}, {due} "
    "FROM {job}{in_turn} WHERE {queue} = %s AND {state} = {of_state} "
    "ORDER BY {rank}, {due}, {id} LIMIT {limit}) AS seen GROUP BY {backend}"
)
_WHOLE = (
    "SELECT {own_queue}, {own_state}, {its_backend}, COUNT(*), {first_due} FROM (SELECT {queue}, "
    "{state}, {backend}, {due} FROM {job} LIMIT {limit}) AS seen "
    "GROUP BY {queue}, {state}, {backend}"
)
_OLDEST = (
    "SELECT {place}, {its_backend}, 0, {due} FROM (SELECT {backend}, {due} FROM {job}{in_turn} "
    "WHERE {queue} = %s AND {state} = {of_state} AND {rank} = {of_rank} AND {due} = {moment} "
    "LIMIT 1) AS seen"
)
_DUE_BEFORE = (
    "SELECT {place}, {its_backend}, COUNT(*), {first_due} FROM (SELECT {backend}, {due} "
    "FROM {job}{in_turn} WHERE {queue} = %s AND {state} = {of_state} AND {rank} = {of_rank} "
    "AND {due} < {before} ORDER BY {due}, {id} LIMIT {limit}) AS seen GROUP BY {backend}"
)
# Waiting and running ones apart: the index of leases has both, and few other jobs.
_SUSPECTS = (
    "SELECT {columns} FROM (SELECT {read} FROM {job}{of_leases} WHERE {is_suspect} "
    "AND {lease_expires} IS NULL LIMIT {limit}) AS waiting UNION ALL "
    "SELECT {columns} FROM (SELECT {read} FROM {job}{of_leases} WHERE {is_suspect} "
    "AND {lease_expires} IS NOT NULL LIMIT {limit}) AS running"
)

_OPEN_NAMES_BY_STEPS = (
    "WITH RECURSIVE names (name) AS (SELECT MIN({queue}) FROM {failed} WHERE {resolution} = '' "
    "UNION ALL SELECT (SELECT MIN({queue}) FROM {failed} WHERE {resolution} = '' "
    "AND {queue} > names.name) FROM names WHERE names.name IS NOT NULL) "
    "SELECT name FROM names WHERE name IS NOT NULL"
)
# With "=" MariaDB would give up its loose scan and read every matching index entry.
_OPEN_NAMES_BY_GROUPS = (
    "SELECT {queue} FROM {failed} WHERE {resolution} <= '' GROUP BY {resolution}, {queue}"
)
_OPEN = (
    "SELECT {place}, {its_backend}, COUNT(*) FROM (SELECT {backend} FROM {failed} "
    "WHERE {resolution} = '' AND {queue} = %s ORDER BY {failed_at} DESC, {id} DESC "
    "LIMIT {limit}) AS seen GROUP BY {backend}"
)


class Band(NamedTuple):
    """The jobs of a queue in one state that share a rank, and when the first of them is due.

    ``rank`` and ``due`` are None where SQLite keeps no number for them.
    """

    queue: str
    state: int
    rank: int | None
    due: int | None


class Count(NamedTuple):
    """How many jobs a backend has in a queue and a state, and when the oldest of them was due.

    ``at_least``: there may be more, which were not counted.
    """

    backend: str
    queue: str
    state: int
    jobs: int
    oldest: int | None
    at_least: bool


class Letters(NamedTuple):
    """How many open dead letters a backend has of a queue, or at least."""

    backend: str
    queue: str
    letters: int
    at_least: bool


def bands(alias: str, queue: str | None = None) -> list[Band]:
    """The bands of one queue, or of all: one index lookup for each band."""
    connection = connections[alias]
    words = _words(connection)
    named = [] if queue is None else [queue]
    if connection.vendor == "mysql":
        # With "=" it would give up its loose scan and read the whole queue.
        these = f" WHERE {words['queue']} >= %s AND {words['queue']} <= %s" if named else ""
        sql, named = _BANDS_BY_GROUPS.format(**words, these=these), named * 2
    else:
        names = "SELECT %s" if named else _ALL_NAMES.format(**words)
        states = " UNION ALL ".join(f"SELECT {int(state)} AS state" for state in JobState)
        sql = _BANDS_BY_STEPS.format(**words, names=names, states=states, greatest=_GREATEST_RANK)
    return [
        Band(name, state, _number(rank), _number(due))
        for stored, state, rank, due in _rows(alias, sql, named)
        if (name := text_of(stored)) is not None and state in JobState
    ]


def counts(alias: str, of: Iterable[Band], most: int) -> list[Count]:
    """Count the jobs of queues by backend and state, up to ``most`` of each.

    The due time of the oldest job is exact. Where backends share the name of a queue it is exact
    only for the backend that has the oldest job.
    """
    first: dict[tuple[str, int], Band] = {}
    for band in of:
        place = band.queue, band.state
        if place not in first or _later(first[place].due) > _later(band.due):
            first[place] = band
    there, asked = list(first.values()), {name for name, _ in first}
    if len(there) > PARTS_AT_ONCE and (whole := _whole(alias, most)) is not None:
        return [count for count in whole if count.queue in asked]
    counted, mixed = ([], there) if _is_shared(alias) else _of_one_backend(alias, there, most)
    return counted + _by_backend(alias, mixed, min(most, MIXED_AT_MOST))


def _whole(alias: str, most: int) -> list[Count] | None:
    """Count the whole table if it is small: thousands of queues often hold few jobs."""
    words = _words(connections[alias])
    rows = _rows(alias, _WHOLE.format(**words, limit=WHOLE_AT_MOST + 1), [])
    if sum(jobs for *_, jobs, _ in rows) > WHOLE_AT_MOST:
        return None
    return [
        Count(name, queue_name, state, min(jobs, most), _number(due), jobs > most)
        for queue, state, backend, jobs, due in rows
        if (name := text_of(backend)) is not None
        and (queue_name := text_of(queue)) is not None
        and state in JobState
    ]


def _of_one_backend(alias: str, there: Sequence[Band], most: int) -> tuple[list[Count], list[Band]]:
    """Count from an index alone; also return the bands with jobs of several backends."""
    counted, mixed = [], []
    answers = _parts(alias, _COUNT, there, limit=most + 1, looked_at=LOOKED_AT)
    for band, jobs, least, greatest in answers:
        name = text_of(least)
        if name is None or name != text_of(greatest):
            mixed.append(band)
        else:
            count = Count(name, band.queue, band.state, min(jobs, most), band.due, jobs > most)
            counted.append(count)
    return counted, mixed


def _by_backend(alias: str, mixed: Sequence[Band], most: int) -> list[Count]:
    """Count the first jobs of bands that several backends may share."""
    jobs = Counter[tuple[Band, str]]()
    total = Counter[Band]()
    oldest: dict[tuple[Band, str], int | None] = {}
    for part, limit in ((_BY_BACKEND, most + 1), (_OLDEST, 0)):
        for band, backend, number, due in _parts(alias, part, mixed, limit=limit):
            if (name := text_of(backend)) is not None:
                jobs[band, name] += number
                oldest[band, name] = _number(due)
            total[band] += number
    return [
        Count(name, *band[:2], min(number, most), oldest[band, name], total[band] > most)
        for (band, name), number in jobs.items()
    ]


def overdue(alias: str, before: int, most: int, queue: str | None = None) -> list[Count]:
    """Jobs that wait and were due before a moment, up to ``most`` of each rank."""
    late = [
        band
        for band in bands(alias, queue)
        if band.state != JobState.RUNNING and _later(band.due) < before and band.rank is not None
    ]
    read = list(_parts(alias, _DUE_BEFORE, late, limit=most + 1, before=before))
    total = Counter[Band]()
    for band, _, jobs, _ in read:
        total[band] += jobs
    return [
        Count(name, band.queue, band.state, min(jobs, most), _number(due), total[band] > most)
        for band, backend, jobs, due in read
        if (name := text_of(backend)) is not None
    ]


def suspects(alias: str, most: int) -> Counter[tuple[str, str]]:
    """How many suspects there are by backend and queue, among the first ``most`` of them."""
    totals = Counter[tuple[str, str]]()
    for row in _suspects(alias, ("backend", "queue"), most):
        backend, queue = map(text_of, row)
        if backend is not None and queue is not None:
            totals[backend, queue] += 1
    return totals


def keys_of_suspects(alias: str, most: int) -> list[str]:
    """The ids of suspects, of ``most`` that wait and as many that run."""
    texts = (
        text_of(key) if isinstance(key, bytes) else str(key)
        for (key,) in _suspects(alias, ("id",), most)
    )
    return [key for text in texts if text is not None and (key := parse_id(text))]


def queues_of_open_dead_letters(alias: str) -> list[str]:
    """The names of queues that have unresolved dead letters."""
    connection = connections[alias]
    mysql = connection.vendor == "mysql"
    names = _OPEN_NAMES_BY_GROUPS if mysql else _OPEN_NAMES_BY_STEPS
    rows = _rows(alias, names.format(**_words(connection)), [])
    return [name for (name,) in rows if isinstance(name, str)]


def open_dead_letters(alias: str, queues: Iterable[str], most: int) -> list[Letters]:
    """Count the open ones of queues by backend and queue, up to ``most`` of a queue."""
    of = [Band(name, 0, None, None) for name in queues]
    read = list(_parts(alias, _OPEN, of, limit=most + 1))
    total = Counter[str]()
    for band, _, count in read:
        total[band.queue] += count
    return [
        Letters(name, band.queue, min(count, most), total[band.queue] > most)
        for band, backend, count in read
        if (name := text_of(backend)) is not None
    ]


def _suspects(alias: str, columns: Sequence[str], most: int) -> list[Any]:
    words = _words(connections[alias])
    read = ", ".join(words[name] for name in columns)
    as_text = ", ".join(words["text"].format(words[name]) for name in columns)
    return _rows(alias, _SUSPECTS.format(**words, read=read, columns=as_text, limit=most), [])


def _is_shared(alias: str) -> bool:
    """Whether several backends keep their jobs in this database."""
    configured = get_settings().backends.values()
    return sum(database_of(config) == alias for config in configured) > 1


def _parts(alias: str, part: str, of: Sequence[Band], **figures: int) -> Iterator[Any]:
    """Query many bands in one statement; each row follows its band."""
    words = _words(connections[alias])
    for start in range(0, len(of), PARTS_AT_ONCE):
        some = of[start : start + PARTS_AT_ONCE]
        sql = " UNION ALL ".join(
            part.format(
                **words,
                **figures,
                place=place,
                of_state=band.state,
                of_rank=band.rank if band.rank is not None else "NULL",
                moment=band.due if band.due is not None else "NULL",
            )
            for place, band in enumerate(some)
        )
        params = [band.queue for band in some for _ in range(part.count("%s"))]
        reads_much = len(some) * figures["limit"] > COMPILED_FROM
        for place, *answer in _rows(alias, sql, params, reads_much=reads_much):
            yield some[place], *answer


def _rows(alias: str, sql: str, params: list[str], *, reads_much: bool = False) -> list[Any]:
    connection = connections[alias]
    quiet = reads_much and connection.vendor == "postgresql"

    def work() -> list[Any]:
        step = transaction.atomic(alias, savepoint=False) if quiet else nullcontext()
        with step, connection.cursor() as cursor:
            if quiet:
                # Compiling so many small parts takes longer than running them.
                cursor.execute("SET LOCAL jit = off")
            cursor.execute(sql, params)
            return list(cursor.fetchall())

    return in_reading(alias, work)


def _later(due: int | None) -> float:
    return float("inf") if due is None else due


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _words(connection: BaseDatabaseWrapper) -> dict[str, Any]:
    quote = connection.ops.quote_name
    of_jobs = ("id", "queue", "state", "backend", "rank", "due", "lease_expires")
    columns = (*of_jobs, "resolution", "failed_at")
    # SQLite's driver fails at the first text that is not UTF-8.
    sqlite, mysql = connection.vendor == "sqlite", connection.vendor == "mysql"
    text = "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) END" if sqlite else "{0}"
    number = "CASE typeof({0}) WHEN 'integer' THEN {0} END" if sqlite else "{0}"
    return {
        "job": quote(Job._meta.db_table),
        "failed": quote(FailedJob._meta.db_table),
        "text": text,
        "first_backend": text.format(f"MIN({quote('backend')})"),
        "last_backend": text.format(f"MAX({quote('backend')})"),
        "its_backend": text.format(quote("backend")),
        "own_queue": text.format(quote("queue")),
        "own_state": number.format(quote("state")),
        "its_queue": text.format("bands.queue"),
        "its_rank": number.format("bands.place"),
        # The type of a subquery's value has to be checked too.
        "first_due": number.format(f"MIN({quote('due')})"),
        # Written as in the index: for a bare column MariaDB would not use it.
        "is_suspect": quote("suspect") + ("" if connection.vendor == "postgresql" else " = 1"),
        "of_leases": " FORCE INDEX (dj_job_reap)" if mysql else "",
        "in_turn": " FORCE INDEX (dj_job_claim)" if mysql else "",
        **{name: quote(name) for name in columns},
    }
