"""Dead letters on their way from Redis to the database, where people look for them.

They are parked in the step that ends the job. Here they are copied, and only then removed:
whoever dies in between leaves a copy that the next one finds. While the database is away
they stay parked.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import Error, InterfaceError, OperationalError, transaction

from django_jobs.backends.base import Failure, Lease
from django_jobs.backends.database.clock import StoreClock
from django_jobs.backends.database.grouping import bury
from django_jobs.backends.database.rows import attempt_of, failed_job_of, fit, id_of_dead
from django_jobs.backends.database.sweeping import Sweeper
from django_jobs.backends.redis.endings import attempts_of
from django_jobs.backends.redis.packing import created_at, unpack
from django_jobs.clock import LATEST
from django_jobs.conf import get_settings
from django_jobs.models import JobAttempt
from django_jobs.routers import job_databases
from django_jobs.telemetry.events import emit
from django_jobs.telemetry.trouble_events import DeadLetterStays, DeadLettersUnswept
from django_jobs.wire.envelope import Header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django_jobs.backends.redis.store import Store


AT_ONCE = 100
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
        self._pause = 0.0
        self._rests_until = float("-inf")

    def carry_one(self, queue: str, job_id: str) -> None:
        """Copy the dead letter of a job that was just abandoned, and no other.

        Whoever asks renews leases, too: the letters that an outage has left are for housekeeping.
        """
        base = self._store.layout.base(queue)
        if time.monotonic() >= self._rests_until:
            raw = self._store.connection.ask(lambda client: client.hget(base + "dead", job_id))
            self._some(queue, base, {job_id.encode(): raw} if raw else {})

    def carry(self, queue: str, limit: int) -> int:
        """Copy dead letters of a queue to the database, and then remove them; how many."""
        base, carried, cursor = self._store.layout.base(queue), 0, 0
        while carried < limit and time.monotonic() >= self._rests_until:
            cursor, found = self._store.connection.ask(_page(base + "dead", cursor))
            carried += self._some(queue, base, found)
            if not cursor:
                break
        return carried

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
        attempts = self._store.connection.ask(
            lambda client: {
                one.lease.id: client.lrange(base + "att:" + one.lease.id, 0, -1)
                for one in parked.values()
            }
        )
        copied, away = copy(list(parked.values()), attempts)
        self._rest(away=away)
        there = set(copied)
        names = [name for name, one in parked.items() if one.lease.id in there]
        if names:
            self._store.run("unpark", queue, names)
        return len(names)

    def _rest(self, *, away: bool) -> None:
        """Each try of a database that is away may last as long as its driver waits."""
        self._pause = min(max(self._pause * 2, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS) * away
        if away:
            self._rests_until = time.monotonic() + self._pause


def _page(key: str, cursor: int) -> Callable[[Any], Any]:
    return lambda client: client.hscan(key, cursor, count=AT_ONCE)


def copy(parked: Sequence[Parked], attempts: Mapping[str, list[bytes]]) -> tuple[list[str], bool]:
    """Insert dead letters that are not there yet.

    The ids of those that are there now, and whether the database went away meanwhile.
    """
    database = job_databases(get_settings())[0]
    copied: list[str] = []
    for one in parked:
        try:
            with transaction.atomic(using=database):
                _insert(database, one, attempts.get(one.lease.id, []))
        except Error as error:
            emit(DeadLetterStays(job_id=one.lease.id, error=error))
            if isinstance(error, _AWAY):
                return copied, True
            if transaction.get_connection(database).in_atomic_block:
                break
        else:
            copied.append(one.lease.id)
    return copied, False


def _insert(database: str, parked: Parked, attempts: list[bytes]) -> None:
    lease = parked.lease._replace(id=str(id_of_dead(parked.lease.id)))
    dead = failed_job_of(lease, parked.failure, parked.failed_at)
    fit(dead)
    if not bury(database, dead):
        return
    runs = [attempt_of(lease, record) for record in attempts_of(attempts)]
    for run in runs:
        fit(run)
    JobAttempt.objects.using(database).bulk_create(runs)


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
