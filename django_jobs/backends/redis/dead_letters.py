"""Dead letters on their way from Redis to the database, where people look for them.

They are parked in the step that ends the job. Here they are copied, and only then removed:
whoever dies in between leaves a copy that the next one finds. While the database is away
they stay parked.
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
from django_jobs.backoff import Backoff
from django_jobs.clock import LATEST
from django_jobs.conf import get_settings
from django_jobs.db.cleanup import Sweeper
from django_jobs.db.clock import StoreClock
from django_jobs.db.dead_letters import bury_all
from django_jobs.db.transactions import is_refusal
from django_jobs.models import JobAttempt
from django_jobs.routers import job_databases
from django_jobs.telemetry.events import DeadLetterStays, DeadLettersUnswept, emit
from django_jobs.wire.envelope import Header

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from django_jobs.backends.redis.store import Store


AT_ONCE = 100
CHUNK_BYTES = 1_000_000
PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
_AWAY = (InterfaceError, OperationalError)
_LARGEST = 2**31 - 1
_NO_PLACE = b"100" + b"0" * 16
_REASONS = ("reason", "error_type", "error_message", "traceback", "output", "fingerprint")


class Parked(NamedTuple):
    """A dead letter that stands in Redis alone."""

    lease: Lease
    failure: Failure
    failed_at: int


def parked_of(job_id: bytes, raw: bytes, *, queue: str, backend: str) -> Parked:
    """What a script parked. Whatever is missing in it is left empty."""
    told = _mapping(raw)
    failure = _mapping(told.get("failure"))
    message = str(told.get("message") or "").encode("utf-8", "replace")
    place = message[1:20] if len(message) > len(_NO_PLACE) else _NO_PLACE
    names = ("attempts", "deliveries", "crashes")
    counters = (min(_number(told.get(name)), _LARGEST) for name in names)
    name, opened = unpack(
        message, place=place + job_id, queue=queue, backend=backend, header=Header(*counters)
    )
    texts: dict[str, Any] = {key: str(failure.get(key) or "") for key in _REASONS}
    texts["reason"] = texts["reason"] or "rejected-malformed"
    lease = Lease(name, queue, "", 0, opened, created_at=created_at(name))
    return Parked(lease, Failure(**texts), _number(told.get("now")))


class Relay:
    """Copies what one backend has parked, and deletes old copies."""

    def __init__(self, store: Store, backend: str) -> None:
        self._store = store
        self._backend = backend
        self._sweeper: Sweeper | None = None
        self._cursors: dict[str, int] = {}
        self._backoff = Backoff(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._rests_until = float("-inf")

    def carry_one(self, queue: str, job_id: str) -> None:
        """Copy the dead letter of a job that was just abandoned, and no other.

        Whoever asks renews leases, too: the letters that an outage has left are for housekeeping.
        """
        base = self._store.layout.base(queue)
        if time.monotonic() >= self._rests_until:
            raw = self._store.connection.ask(lambda client: client.hget(base + "dead", job_id))
            self._some(queue, base, {job_id.encode(): raw} if raw else {})

    def carry(self, queues: Sequence[str], limit: int, until: float) -> int:
        """Copy dead letters to the database, and then remove them; how many.

        A page of each queue in turn, until so many were copied or that moment of the monotonic
        clock has come, but one page at least. The next time goes on there: letters that cannot
        be copied hide no others.
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
        cursor, found = self._store.connection.ask(
            lambda client: client.hscan(base + "dead", cursor, count=AT_ONCE)
        )
        if cursor:
            self._cursors[queue] = cursor
        return self._some(queue, base, found)

    def sweep(self, limit: int) -> int:
        """Delete what is over of the copies, as a worker of that database would; how many.

        It may have no worker: where all jobs are in Redis nobody else comes by.
        """
        if time.monotonic() < self._rests_until:
            return 0
        database = job_databases(get_settings())[0]
        if self._sweeper is None or self._sweeper.alias != database:
            self._sweeper = Sweeper(database)
        try:
            return self._sweeper.sweep(StoreClock(), limit)
        except Error as error:
            emit(DeadLettersUnswept(backend=self._backend, error=error))
            return 0

    def _some(self, queue: str, base: str, found: Mapping[bytes, bytes]) -> int:
        if not found:
            return 0
        parked = {
            name: parked_of(name, raw, queue=queue, backend=self._backend)
            for name, raw in found.items()
        }
        attempts = self._store.connection.ask(lambda client: _attempts(client, base, parked))
        copied, away = copy(list(parked.values()), attempts)
        self._rest(away=away)
        there = set(copied)
        names = [name for name, one in parked.items() if one.lease.id in there]
        if names:
            self._store.run("unpark", queue, names)
        return len(names)

    def _rest(self, *, away: bool) -> None:
        """Each try of a database that is away may last as long as its driver waits."""
        if away:
            self._rests_until = time.monotonic() + self._backoff.next()
        else:
            self._backoff.reset()


def copy(parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]) -> tuple[list[str], bool]:
    """Insert dead letters that are not there yet.

    The ids of those that are there now, and whether the database went away meanwhile. All in
    one transaction, or each in one of its own where the database refuses one of them.
    """
    database = job_databases(get_settings())[0]
    copied: list[str] = []
    for some in _chunks(parked, attempts):
        try:
            _insert(database, some, attempts)
        except Error as error:
            if not isinstance(error, _AWAY) or is_refusal(error):
                there, away = _copy_singly(database, some, attempts)
                copied += there
                if not away:
                    continue
            else:
                emit(DeadLetterStays(job_id=some[0].lease.id, error=error))
            return copied, True
        copied += [one.lease.id for one in some]
    return copied, False


def _chunks(
    parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]
) -> Iterator[list[Parked]]:
    """As many as one statement may carry: servers refuse those that are too long."""
    chunk: list[Parked] = []
    room = CHUNK_BYTES
    for one in parked:
        size = len(one.lease.message.body) + len(one.failure.traceback) + len(one.failure.output)
        size += sum(map(len, attempts.get(one.lease.id, ())))
        if chunk and size > room:
            yield chunk
            chunk, room = [], CHUNK_BYTES
        chunk.append(one)
        room -= size
    if chunk:
        yield chunk


def _copy_singly(
    database: str, parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]
) -> tuple[list[str], bool]:
    copied: list[str] = []
    for one in parked:
        try:
            _insert(database, [one], attempts)
        except Error as error:
            emit(DeadLetterStays(job_id=one.lease.id, error=error))
            if isinstance(error, _AWAY):
                return copied, True
            if transaction.get_connection(database).in_atomic_block:
                break
        else:
            copied.append(one.lease.id)
    return copied, False


def _insert(database: str, parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]) -> None:
    """Insert dead letters that are not there yet, with their attempts, in one transaction."""
    leases = [one.lease._replace(id=str(id_of_dead(one.lease.id))) for one in parked]
    letters = {}
    runs = {}
    for one, lease in zip(parked, leases, strict=True):
        dead = failed_job_of(lease, one.failure, one.failed_at)
        fit(dead)
        letters[dead.job_id] = dead
        records = attempts_of(attempts.get(one.lease.id, []))
        runs[dead.job_id] = [attempt_of(lease, record) for record in records]
    with transaction.atomic(using=database):
        new = bury_all(database, list(letters.values()))
        mine = [run for dead in new for run in runs[dead.job_id]]
        for run in mine:
            fit(run)
        JobAttempt.objects.using(database).bulk_create(mine)


def _attempts(client: Any, base: str, parked: Mapping[bytes, Parked]) -> dict[str, list[bytes]]:
    ids = [one.lease.id for one in parked.values()]
    pipe = client.pipeline(transaction=False)
    for job_id in ids:
        pipe.lrange(base + "att:" + job_id, 0, -1)
    return dict(zip(ids, pipe.execute(), strict=True))


def _mapping(raw: Any) -> dict[str, Any]:
    try:
        told = json.loads(raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw)
    except (ValueError, TypeError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _number(value: object) -> int:
    try:
        return min(max(int(str(value)), 0), LATEST)
    except ValueError:
        return 0
