"""Waiting for work: sleep until a job is due or a hint says that one may be.

Each waiting thread has its own ``Watch``. Between polls it sleeps on what the database offers:
notifications on PostgreSQL, the change counter on SQLite, a timeout on MariaDB and MySQL. All
of them are hints; only a poll, called a glance here, tells what is due.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections

from django_jobs.backends.base import HousekeepingDue
from django_jobs.backends.database.listen import Changes, Listener, can_see_others
from django_jobs.clock import SECOND, to_microseconds
from django_jobs.db.transactions import in_reading
from django_jobs.models import Job, JobResult, JobState, QueueControl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.db.clock import StoreClock


SURE_FACTOR = 2.0
"""A worker that gets hints polls so many times less often."""

# Hints are limited in rate (see notify.py): a job that follows closely after another has none of
# its own. So after a hint the worker polls, first after slightly more than that, then less often.
FIRST_LOOK_AFTER_HINT = 0.03
LOOKS_GROW = 3.0
STOP_PATIENCE = 0.2


class Watch:
    """Waits for work in the queues of one backend, for one thread."""

    def __init__(
        self,
        database: str,
        backend: str,
        look: Callable[[Sequence[str] | None], Glance],
        *,
        hints: bool,
    ) -> None:
        self.stopped = False
        self._look = look
        self._alarm, self._bell = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._waits = threading.Lock()
        self._look_in: float | None = None
        connection = connections[database]
        wants = hints and not connection.in_atomic_block
        self._listener = None
        self._changes = None
        if connection.vendor == "postgresql" and wants:
            self._listener = Listener(connection, self._selector, backend)
        elif connection.vendor == "sqlite" and can_see_others(connection):
            self._changes = Changes(connection)
        # Also when the thread or the test ends without calling stop().
        ends = (self._selector, self._alarm, self._bell)
        self._close = weakref.finalize(self, _close, self._listener, *ends)

    def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        """Whether there may be work; False if none was seen until the timeout."""
        with self._waits:
            try:
                return self._until_work(queues, time.monotonic() + timeout)
            finally:
                if self.stopped:
                    self._close()

    def _until_work(self, queues: Sequence[str] | None, deadline: float) -> bool:
        while not self.stopped:
            if self._changes is not None:
                self._changes.begin()
            seen = self._look(queues)
            if seen.due_in == 0.0:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._listener is not None and self._listener.begins():
                # Jobs enqueued before it listened sent it no hint, and it may have missed a
                # hint after which the next ones were left out.
                self._look_in = FIRST_LOOK_AFTER_HINT
                continue
            pause = self._pause(left, seen.due_in)
            if self._sleep(queues, pause):
                self._look_in = FIRST_LOOK_AFTER_HINT
                return True
            if pause == left and time.monotonic() >= deadline:
                return False  # the next wait begins with a poll
        return False

    def _pause(self, left: float, due_in: float | None) -> float:
        pauses = [left]
        if due_in is not None:
            pauses.append(due_in)
        if self._listener is not None:
            pauses.append(self._listener.tries_in())
        if self._look_in is not None:
            pauses.append(self._look_in)
            self._look_in = self._look_in * LOOKS_GROW if self._look_in < left else None
        return min(pauses)

    def _sleep(self, queues: Sequence[str] | None, seconds: float) -> bool:
        """Whether a hint came. May return early for other reasons."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.stopped:
            if self._changes is not None:
                left = min(left, self._changes.every)
            rung = self._selector.select(left)
            if self._listener is not None and rung:
                if self._listener.has_hint(queues):
                    return True
                if not self._listener.listens:
                    return False
            if self._changes is not None and self._changes.seen():
                return False
        return False

    @property
    def gets_hints(self) -> bool:
        """Whether notifications of new jobs wake this thread."""
        return self._listener is not None and self._listener.listens

    def stop(self) -> None:
        """End a wait that is under way, and close its resources. For any thread."""
        self.stopped = True
        with contextlib.suppress(OSError):  # already closed
            self._bell.send(b"!")
        if self._waits.acquire(timeout=STOP_PATIENCE):  # else it hangs, and ends with its process
            self._close()
            self._waits.release()


def _close(listener: Listener | None, *ends: selectors.BaseSelector | socket.socket) -> None:
    if listener is not None:
        listener.close()
    for end in ends:
        end.close()


class Watches:
    """The watches of a backend's threads."""

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._all: weakref.WeakSet[Watch] = weakref.WeakSet()

    def mine(self) -> Watch | None:
        """The watch of the calling thread, which may be stopped."""
        watch: Watch | None = getattr(self._of_thread, "watch", None)
        return watch

    def keep(self, watch: Watch) -> Watch:
        self._of_thread.watch = watch
        self._all.add(watch)
        return watch

    def drop(self, watch: Watch) -> None:
        """Forget a stopped watch of this thread."""
        self._of_thread.watch = None
        self._all.discard(watch)

    def stop(self) -> None:
        """Stop all of them."""
        for watch in list(self._all):
            watch.stop()
            self._all.discard(watch)


_READY, _SCHEDULED, _RUNNING, _BLOCKED = (
    int(state) for state in (JobState.READY, JobState.SCHEDULED, JobState.RUNNING, JobState.BLOCKED)
)
# Ordered as the index is: otherwise a planner that expects to find a ready job anywhere would
# read the whole table to find none.
_READY_JOB = (
    "SELECT {due} FROM {job}{in_turn} WHERE {queue} = {name} AND {state} = {READY} "
    "AND {backend} = %s AND NOT EXISTS (SELECT 1 FROM {control} WHERE {control}.{backend} = %s "
    "AND {control}.{queue} = {name} AND {paused}) ORDER BY {rank}, {due}, {id} LIMIT 1"
)
_NEXT_JOB = (
    "SELECT {due} FROM {job}{by_due} WHERE {queue} = {name} AND {state} = {SCHEDULED} "
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
# MariaDB and MySQL do a loose scan for GROUP BY; a subquery they would read from its start.
_NAMES_BY_GROUPS = "WITH names (name) AS (SELECT {queue} FROM {job} GROUP BY {queue}) "

# The queues that have such a job, in one statement.
_NAMES_WHERE_BLOCKED = (
    "{names}SELECT {text} FROM names WHERE (SELECT {state} FROM {job} WHERE {queue} = {name} "
    "AND {state} = {BLOCKED} LIMIT 1) = {BLOCKED}"
)
_NAMES_WHERE_ENDLESS = (
    "{names}SELECT {text} FROM names WHERE (SELECT {state} FROM {job}{in_turn} "
    "WHERE {queue} = {name} AND {state} = {RUNNING} AND {lease_expires} IS NULL "
    "LIMIT 1) = {RUNNING}"
)
_NAMES_WHERE_DUE = (
    "{names}SELECT {text} FROM names WHERE (SELECT {due} FROM {job}{by_due} WHERE {queue} = {name} "
    "AND {state} = {SCHEDULED} ORDER BY {due} LIMIT 1) <= {now}"
)

# SQLite's driver fails at the first text that is not UTF-8.
_TEXT_AS_BYTES = "CASE typeof(names.name) WHEN 'text' THEN CAST(names.name AS BLOB) END"

LATELY_SECONDS = 2.5


class Glance(NamedTuple):
    """The answer of one poll. Moments are microseconds on the store's clock.

    ``moments``: if all queues were polled, when the next job of each is due.
    """

    now: int
    ready: bool
    due: int | None
    lease_ends: int | None
    result_ends: int | None
    opens_in: float | None = None
    moments: Mapping[str, int] = {}

    def housekeeping_due(self) -> HousekeepingDue:
        """The housekeeping that is due."""
        return HousekeepingDue(
            reap=self._is_over(self.lease_ends),
            clean_up=self._is_over(self.due) or self._is_over(self.result_ends),
        )

    def _is_over(self, moment: int | None) -> bool:
        return moment is not None and moment <= self.now

    def queues_due(self) -> list[str]:
        """The queues with a due job. Closed ones too: claims know how long they stay closed."""
        return [name for name, moment in self.moments.items() if moment <= self.now]

    @property
    def due_in(self) -> float | None:
        """Seconds until a job can be claimed; 0 if one can be now, None if none waits."""
        if self.ready:
            return 0.0
        due_in = None if self.due is None else max(self.due - self.now, 0) / SECOND
        return min((x for x in (due_in, self.opens_in) if x is not None), default=None)


class LastGlance:
    """The last glance at all queues, for callers that do not mind an age of a second or two."""

    def __init__(self) -> None:
        self._last: tuple[float, Glance] | None = None
        self._moments: tuple[float, Glance] | None = None

    def keep(self, queues: Sequence[str] | None, began: float, seen: Glance) -> Glance:
        if queues is None:
            self._last = self._moments = (began, seen)
        return seen

    def taken(self) -> Glance | None:
        """The last glance, brought up to now; only once, as its caller may change what it saw."""
        last, self._last = self._last, None
        if last is None or time.monotonic() - last[0] > LATELY_SECONDS:
            return None
        return _as_of_now(*last)

    def since(self, moment: float) -> Glance | None:
        """The last glance if it began no earlier than ``moment``, brought up to now."""
        last = self._moments
        return None if last is None or last[0] < moment else _as_of_now(*last)


def _as_of_now(began: float, seen: Glance) -> Glance:
    return seen._replace(now=seen.now + to_microseconds(time.monotonic() - began))


def glance(
    alias: str,
    clock: StoreClock,
    backend: str,
    queues: Sequence[str] | None = None,
    closed: Mapping[str, float] | None = None,
) -> Glance:
    """Poll some queues of a backend, or all of them, without the closed ones.

    One read-only statement tells whether a job is due, when the next one will be, when the first
    lease and the first result end, and the store's time. However many jobs wait, it reads a few
    index entries per queue: queue names are found by a loose scan of the index.

    ``closed``: seconds until a queue opens again.
    """
    shut = {name: left for name, left in (closed or {}).items() if queues is None or name in queues}
    asked = None if queues is None else [name for name in queues if name not in shut]
    connection = connections[alias]
    now = clock.sql(connection.vendor)
    statement = (
        _of_all(connection, now, backend) if asked is None else _of(connection, now, backend, asked)
    )

    def work() -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(*statement)
            return list(cursor.fetchall())

    rows = in_reading(alias, work)
    store_now, lease_ends, result_ends, *_ = rows[0]
    of_queues = _by_queue([row[3:] for row in rows], asked)
    open_ones = [row for row in of_queues if row[0] not in shut]
    moments = {
        name: due if ready is None else 0
        for name, ready, due in of_queues
        if ready is not None or due is not None
    }
    return Glance(
        now=int(store_now),
        ready=any(ready is not None for _, ready, _ in open_ones),
        due=min((due for _, _, due in open_ones if due is not None), default=None),
        lease_ends=lease_ends if isinstance(lease_ends, int) else None,
        result_ends=result_ends if isinstance(result_ends, int) else None,
        opens_in=min(shut.values(), default=None),
        moments=moments if asked is None else {},
    )


def _by_queue(rows: Sequence[Any], asked: Sequence[str] | None) -> list[tuple[str, Any, Any]]:
    """For each queue, its ready job and when the next job is due."""
    if asked is not None:
        dues, half = rows[0], len(rows[0]) // 2
        rows = list(zip(asked, dues[:half], dues[half:], strict=True))
    # On SQLite a name and a moment may have any type, if written by other means.
    return [
        (name, ready, due if isinstance(due, int) else None)
        for stored, ready, due in rows
        if (name := text_of(stored)) is not None
    ]


def _of_all(connection: BaseDatabaseWrapper, now: str, backend: str) -> tuple[str, list[str]]:
    """One row for each queue, or a row without a name if there are none."""
    columns = f"SELECT {now}, ({_NEXT_LEASE_END}), ({_NEXT_RESULT_END}), {{text}}"
    dues = f"({_READY_JOB}), ({_NEXT_JOB})"
    sql = f"{_names(connection)}{columns}, {dues} FROM (SELECT 1 AS one) AS one LEFT JOIN names"
    return f"{sql} ON 1 = 1".format(**_words(connection), name="names.name"), [backend] * 4


def _of(
    connection: BaseDatabaseWrapper, now: str, backend: str, queues: Sequence[str]
) -> tuple[str, list[str]]:
    """A single row: the ready job of each queue, then the next scheduled job of each."""
    ends = f"SELECT {now}, ({_NEXT_LEASE_END}), ({_NEXT_RESULT_END})"
    parts = [f"({part})" for part in (_READY_JOB, _NEXT_JOB) for _ in queues]
    params = [backend]
    for queue in queues:
        params += (queue, backend, backend, queue)
    for queue in queues:
        params += (queue, backend)
    return ", ".join([ends, *parts]).format(**_words(connection), name="%s"), params


def _names(connection: BaseDatabaseWrapper) -> str:
    return _NAMES_BY_GROUPS if connection.vendor == "mysql" else _NAMES_BY_STEPS


def all_queues(alias: str) -> list[str]:
    """The queues that hold live jobs of any backend."""
    return _queue_names(alias, "{names}SELECT {text} FROM names WHERE name IS NOT NULL")


def queues_with_due(alias: str, clock: StoreClock) -> list[str]:
    """The queues in which a job that was scheduled is due."""
    return _queue_names(alias, _NAMES_WHERE_DUE, now=clock.sql(connections[alias].vendor))


def queues_with_blocked(alias: str) -> list[str]:
    """The queues in which a job waits for a key."""
    return _queue_names(alias, _NAMES_WHERE_BLOCKED)


def queues_with_endless(alias: str) -> list[str]:
    """The queues in which a job runs whose lease has no end."""
    return _queue_names(alias, _NAMES_WHERE_ENDLESS)


def _queue_names(alias: str, sql: str, now: str = "") -> list[str]:
    connection = connections[alias]
    words = _words(connection)
    names = _names(connection).format(**words)

    def work() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute(sql.format(**words, names=names, name="names.name", now=now))
            readable = [text_of(stored) for (stored,) in cursor.fetchall()]
            return sorted(name for name in readable if name is not None)

    return in_reading(alias, work)


def text_of(value: Any) -> str | None:
    """The value of a text column; None if SQLite holds no readable text there."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None


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
        "BLOCKED": _BLOCKED,
        "text": _TEXT_AS_BYTES if connection.vendor == "sqlite" else "names.name",
        # In a subquery MariaDB would sort all jobs of a queue to find the first one.
        "in_turn": " FORCE INDEX (dj_job_claim)" if connection.vendor == "mysql" else "",
        "by_due": " FORCE INDEX (dj_job_promote)" if connection.vendor == "mysql" else "",
        **{name: quote(name) for name in columns},
    }
