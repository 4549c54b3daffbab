"""Move dead letters from Redis to the database, where people look for them.

The step that ends a job parks its dead letter in Redis. Here the letters are copied and only then
removed: if the process dies in between, the next one finds the row and only removes the letter.
While the database is away, letters stay parked.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error, InterfaceError, OperationalError, transaction

from django_jobs.backends.base import Failure, Lease
from django_jobs.backends.ended_jobs import attempt_of, failed_job_of, fit, id_of_dead
from django_jobs.backends.redis.records import attempts_of, created_at, unpack
from django_jobs.clock import LATEST
from django_jobs.conf import get_settings
from django_jobs.db.cleanup import Sweeper
from django_jobs.db.clock import StoreClock
from django_jobs.db.dead_letters import add_dead_letters
from django_jobs.db.transactions import is_refusal
from django_jobs.models import JobAttempt
from django_jobs.retry import Backoff
from django_jobs.routers import job_databases
from django_jobs.telemetry.events import DeadLetterCopyFailed, DeadLettersPurgeFailed, emit
from django_jobs.wire.envelope import Header

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from django_jobs.backends.redis.store import RedisStore


AT_ONCE = 100
CHUNK_BYTES = 1_000_000
PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
_AWAY = (InterfaceError, OperationalError)
_LARGEST = 2**31 - 1
_NO_PLACE = b"100" + b"0" * 16
_REASONS = ("reason", "error_type", "error_message", "traceback", "output", "fingerprint")


class Parked(NamedTuple):
    """A dead letter that is only in Redis."""

    lease: Lease
    failure: Failure
    failed_at: int


def parked_of(job_id: bytes, raw: bytes, *, queue: str, backend: str) -> Parked:
    """The dead letter that a script parked. Missing fields are left empty."""
    fields = _mapping(raw)
    failure = _mapping(fields.get("failure"))
    message = str(fields.get("message") or "").encode("utf-8", "replace")
    place = message[1:20] if len(message) > len(_NO_PLACE) else _NO_PLACE
    names = ("attempts", "deliveries", "crashes")
    counters = (min(_number(fields.get(name)), _LARGEST) for name in names)
    name, opened = unpack(
        message, place=place + job_id, queue=queue, backend=backend, header=Header(*counters)
    )
    texts: dict[str, Any] = {key: str(failure.get(key) or "") for key in _REASONS}
    texts["reason"] = texts["reason"] or "rejected-malformed"
    lease = Lease(name, queue, "", 0, opened, created_at=created_at(name))
    return Parked(lease, Failure(**texts), _number(fields.get("now")))


class DeadLetterRelay:
    """Copies the parked dead letters of one backend, and deletes old copies."""

    def __init__(self, store: RedisStore, backend: str) -> None:
        self._store = store
        self._backend = backend
        self._sweeper: Sweeper | None = None
        self._cursors: dict[str, int] = {}
        self._backoff = Backoff(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._rests_until = float("-inf")

    def carry_one(self, queue: str, job_id: str) -> None:
        """Copy the dead letter of a job that was just abandoned, and no other.

        The caller also renews leases, so letters left by an outage are for housekeeping.
        """
        base = self._store.layout.base(queue)
        if time.monotonic() >= self._rests_until:
            raw = self._store.connection.ask(lambda client: client.hget(base + "dead", job_id))
            self._move(queue, base, {job_id.encode(): raw} if raw else {})

    def carry(self, queues: Sequence[str], limit: int, until: float) -> int:
        """Move dead letters to the database; returns how many.

        It takes a page of each queue in turn, until ``limit`` letters or the monotonic time
        ``until``, but at least one page. The next call goes on there, so that letters which
        cannot be copied do not block others.
        """
        carried, waiting, first = 0, deque(queues), True
        while waiting and carried < limit and (first or time.monotonic() < until):
            if time.monotonic() < self._rests_until:
                break
            first, queue = False, waiting.popleft()
            carried += sum(self._store.past_unreadable([queue], self._page, none=0))
            if queue in self._cursors:
                waiting.append(queue)
        return carried

    def _page(self, queues: list[str]) -> int:
        (queue,) = queues
        base, cursor = self._store.layout.base(queue), self._cursors.pop(queue, 0)
        cursor, letters = self._store.connection.ask(
            lambda client: client.hscan(base + "dead", cursor, count=AT_ONCE)
        )
        if cursor:
            self._cursors[queue] = cursor
        return self._move(queue, base, letters)

    def sweep(self, limit: int) -> int:
        """Delete expired copies, as a worker of that database would; returns how many.

        Where all jobs are in Redis, that database has no worker.
        """
        if time.monotonic() < self._rests_until:
            return 0
        database = job_databases(get_settings())[0]
        if self._sweeper is None or self._sweeper.alias != database:
            self._sweeper = Sweeper(database)
        try:
            return self._sweeper.sweep(StoreClock(), limit)
        except Error as error:
            emit(DeadLettersPurgeFailed(backend=self._backend, error=error))
            return 0

    def _move(self, queue: str, base: str, letters: Mapping[bytes, bytes]) -> int:
        if not letters:
            return 0
        parked = {
            name: parked_of(name, raw, queue=queue, backend=self._backend)
            for name, raw in letters.items()
        }
        attempts = self._store.connection.ask(lambda client: _attempts(client, base, parked))
        copied, away = copy(list(parked.values()), attempts)
        self._rest(away=away)
        there = set(copied)
        names = [name for name, letter in parked.items() if letter.lease.id in there]
        if names:
            self._store.run("unpark", queue, names)
        return len(names)

    def _rest(self, *, away: bool) -> None:
        """Back off from a database that is away: each try may take its driver's timeout."""
        if away:
            self._rests_until = time.monotonic() + self._backoff.next()
        else:
            self._backoff.reset()


def copy(parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]) -> tuple[list[str], bool]:
    """Insert dead letters that are not in the database yet.

    Returns the ids that are there now, and whether the database went away meanwhile. A chunk is
    one transaction; if the database refuses it, each of its letters gets its own.
    """
    database = job_databases(get_settings())[0]
    copied: list[str] = []
    for chunk in _chunks(parked, attempts):
        try:
            _insert(database, chunk, attempts)
        except Error as error:
            if not isinstance(error, _AWAY) or is_refusal(error):
                there, away = _copy_singly(database, chunk, attempts)
                copied += there
                if not away:
                    continue
            else:
                emit(DeadLetterCopyFailed(job_id=chunk[0].lease.id, error=error))
            return copied, True
        copied += [letter.lease.id for letter in chunk]
    return copied, False


def _chunks(
    parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]
) -> Iterator[list[Parked]]:
    """Split the letters so that no statement is too long for the server."""
    chunk: list[Parked] = []
    room = CHUNK_BYTES
    for letter in parked:
        size = (
            len(letter.lease.message.body)
            + len(letter.failure.traceback)
            + len(letter.failure.output)
        )
        size += sum(map(len, attempts.get(letter.lease.id, ())))
        if chunk and size > room:
            yield chunk
            chunk, room = [], CHUNK_BYTES
        chunk.append(letter)
        room -= size
    if chunk:
        yield chunk


def _copy_singly(
    database: str, parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]
) -> tuple[list[str], bool]:
    copied: list[str] = []
    for letter in parked:
        try:
            _insert(database, [letter], attempts)
        except Error as error:
            emit(DeadLetterCopyFailed(job_id=letter.lease.id, error=error))
            if isinstance(error, _AWAY):
                return copied, True
            if transaction.get_connection(database).in_atomic_block:
                break
        else:
            copied.append(letter.lease.id)
    return copied, False


def _insert(database: str, parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]) -> None:
    """Insert new dead letters with their attempts, in one transaction."""
    leases = [letter.lease._replace(id=str(id_of_dead(letter.lease.id))) for letter in parked]
    rows = {}
    runs = {}
    for letter, lease in zip(parked, leases, strict=True):
        dead = failed_job_of(lease, letter.failure, letter.failed_at)
        fit(dead)
        rows[dead.job_id] = dead
        records = attempts_of(attempts.get(letter.lease.id, []))
        runs[dead.job_id] = [attempt_of(lease, record) for record in records]
    with transaction.atomic(using=database):
        new = add_dead_letters(database, list(rows.values()))
        mine = [run for dead in new for run in runs[dead.job_id]]
        for run in mine:
            fit(run)
        JobAttempt.objects.using(database).bulk_create(mine)


def _attempts(client: Any, base: str, parked: Mapping[bytes, Parked]) -> dict[str, list[bytes]]:
    ids = [letter.lease.id for letter in parked.values()]
    pipe = client.pipeline(transaction=False)
    for job_id in ids:
        pipe.lrange(base + "att:" + job_id, 0, -1)
    return dict(zip(ids, pipe.execute(), strict=True))


def _mapping(raw: Any) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw)
    except (ValueError, TypeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    try:
        return min(max(int(str(value)), 0), LATEST)
    except ValueError:
        return 0
