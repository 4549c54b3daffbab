"""All that an idle worker has to know, in one statement that changes nothing.

Whether a job is due, when the next one will be, when the first lease and the first result
end, and the store's own time. However many jobs wait, a few index entries per queue are
read: names of queues are found by a loose scan, from each to the next greater one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections

from django_jobs.backends.base import Chores
from django_jobs.backends.database.transactions import in_reading
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.models import Job, JobResult, JobState, QueueControl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.database.clock import StoreClock

_READY, _SCHEDULED, _RUNNING = (
    int(state) for state in (JobState.READY, JobState.SCHEDULED, JobState.RUNNING)
)
# Ordered as the index is: a planner that expects to find a ready job anywhere would
# otherwise read the whole table to find none.
_READY_JOB = (
    "SELECT {due} FROM {job} WHERE {queue} = {name} AND {state} = {READY} "
    "AND {backend} = %s AND NOT EXISTS (SELECT 1 FROM {control} WHERE {control}.{backend} = %s "
    "AND {control}.{queue} = {name} AND {paused}) ORDER BY {rank}, {due}, {id} LIMIT 1"
)
_NEXT_JOB = (
    "SELECT {due} FROM {job} WHERE {queue} = {name} AND {state} = {SCHEDULED} "
    "AND {backend} = %s ORDER BY {due} LIMIT 1"
)
_NEXT_LEASE_END = (
    "SELECT {lease_expires} FROM {job} WHERE {state} = {RUNNING} AND {backend} = %s "
    "AND {lease_expires} IS NOT NULL ORDER BY {lease_expires} LIMIT 1"
)
_NEXT_RESULT_END = "SELECT {expires} FROM {result} ORDER BY {expires} LIMIT 1"
_NAMES_BY_STEPS = (
    "WITH RECURSIVE names (name) AS (SELECT MIN({queue}) FROM {job} UNION ALL "
    "SELECT (SELECT MIN({queue}) FROM {job} WHERE {queue} > names.name) FROM names "
    "WHERE names.name IS NOT NULL) "
)
# Their loose scan is of their own making; a subquery would be read from its start.
_NAMES_BY_GROUPS = "WITH names (name) AS (SELECT {queue} FROM {job} GROUP BY {queue}) "


LATELY_SECONDS = 2.5


class Glance(NamedTuple):
    """What was to be seen, in microseconds on the store's clock."""

    now: int
    ready: bool
    due: int | None
    lease_ends: int | None
    result_ends: int | None
    opens_in: float | None = None

    def chores(self) -> Chores:
        """What there is to do for everybody."""
        return Chores(
            reap=self._is_over(self.lease_ends),
            tidy=self._is_over(self.due) or self._is_over(self.result_ends),
        )

    def _is_over(self, moment: int | None) -> bool:
        return moment is not None and moment <= self.now

    @property
    def due_in(self) -> float | None:
        """Seconds until a job can be had; 0 when one can, None when none waits."""
        if self.ready:
            return 0.0
        due_in = None if self.due is None else max(self.due - self.now, 0) / SECOND
        return min((x for x in (due_in, self.opens_in) if x is not None), default=None)


class LastGlance:
    """What was seen last of all queues, for those to whom a second or two is all the same."""

    def __init__(self) -> None:
        self._last: tuple[float, Glance] | None = None

    def keep(self, queues: Sequence[str] | None, seen: Glance) -> Glance:
        if queues is None:
            self._last = (time.monotonic(), seen)
        return seen

    def taken(self) -> Glance | None:
        """Once: who did something because of it has to look again. Its clock went on meanwhile."""
        last, self._last = self._last, None
        if last is None or (age := time.monotonic() - last[0]) > LATELY_SECONDS:
            return None
        return last[1]._replace(now=last[1].now + to_microseconds(age))


def glance(
    alias: str,
    clock: StoreClock,
    backend: str,
    queues: Sequence[str] | None = None,
    closed: Mapping[str, float] | None = None,
) -> Glance:
    """Look at some queues of a backend, or at all there are, but those that are closed.

    ``closed``: seconds until something can be had from a queue again.
    """
    shut = {name: left for name, left in (closed or {}).items() if queues is None or name in queues}
    if shut and queues is not None:
        queues = [name for name in queues if name not in shut]
    connection = connections[alias]
    sql, params = _statement(connection, clock.sql(connection.vendor), backend, queues, list(shut))

    def work() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            return cursor.fetchone()

    now, lease_ends, result_ends, *dues = in_reading(alias, work)
    half = len(dues) // 2
    # On SQLite a moment may be of any kind, if it was written by somebody else.
    ready, later = dues[:half], [due for due in dues[half:] if isinstance(due, int)]
    return Glance(
        now=int(now),
        ready=any(due is not None for due in ready),
        due=min(later, default=None),
        lease_ends=lease_ends if isinstance(lease_ends, int) else None,
        result_ends=result_ends if isinstance(result_ends, int) else None,
        opens_in=min(shut.values(), default=None),
    )


def _statement(
    connection: BaseDatabaseWrapper,
    now: str,
    backend: str,
    queues: Sequence[str] | None,
    shut: Sequence[str],
) -> tuple[str, list[str]]:
    words = _words(connection)
    ends = f"SELECT {now}, ({_NEXT_LEASE_END}), ({_NEXT_RESULT_END})"
    if queues is None:
        mysql = connection.vendor == "mysql"
        names = _NAMES_BY_GROUPS if mysql else _NAMES_BY_STEPS
        dues = ", ".join(f"MIN(({part}))" for part in (_READY_JOB, _NEXT_JOB))
        sql = f"{names}{ends}, {dues} FROM names"
        if shut:
            sql += f" WHERE name NOT IN ({', '.join(['%s'] * len(shut))})"
        return sql.format(**words, name="names.name"), [*[backend] * 4, *shut]
    parts = [f"({part})" for part in (_READY_JOB, _NEXT_JOB) for _ in queues]
    params = [backend]
    for queue in queues:
        params += (queue, backend, backend, queue)
    for queue in queues:
        params += (queue, backend)
    return ", ".join([ends, *parts]).format(**words, name="%s"), params


def _words(connection: BaseDatabaseWrapper) -> dict[str, Any]:
    quote = connection.ops.quote_name
    columns = (
        "id",
        "queue",
        "state",
        "backend",
        "rank",
        "due",
        "lease_expires",
        "expires",
        "paused",
    )
    return {
        "job": quote(Job._meta.db_table),
        "result": quote(JobResult._meta.db_table),
        "control": quote(QueueControl._meta.db_table),
        "READY": _READY,
        "SCHEDULED": _SCHEDULED,
        "RUNNING": _RUNNING,
        **{name: quote(name) for name in columns},
    }
