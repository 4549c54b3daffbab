"""How sealed jobs get to their backend: at once, after the caller's commit, or by an outbox.

A backend that shares the caller's transaction gets its jobs at once. Any other could run them
before the caller's rows are committed, or although these are rolled back; so it gets them after
the commit. If the process dies between the commit and the push, or the broker does not answer,
the jobs are lost. With an outbox nothing is lost.

Django stops calling on_commit hooks after one that raises. So the pushes of a transaction run
before all other hooks, which cannot prevent them, and do not raise. Lost jobs are raised by a
second hook, which stays among the other hooks where the first job was enqueued. Each push is a
hook of its own, so that Django discards it when its savepoint is rolled back.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import DEFAULT_DB_ALIAS, connections

from django_jobs import outbox
from django_jobs.backends.base import Enqueued, joins
from django_jobs.backends.breakers import asking_to_enqueue
from django_jobs.db.transactions import naming_missing_tables
from django_jobs.exceptions import (
    EnqueueOutcomeUnknown,
    JobsError,
    NotSupported,
    PushFailed,
)
from django_jobs.routers import outbox_database
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Backend, OnConflict
    from django_jobs.conf import JobsSettings
    from django_jobs.wire.envelope import Outgoing


PUSHED_AT_ONCE = 1000


class Route(NamedTuple):
    """Where jobs go, and what happens if a live job holds their unique key.

    ``again``: they may have been enqueued before, and may have ended since.
    """

    backend: Backend
    on_conflict: OnConflict
    way: Way
    again: bool = False

    def send(
        self, outgoing: Sequence[Outgoing], mine: Sequence[Any], jobs: Sequence[Any]
    ) -> list[Enqueued]:
        """Store messages, now or when the caller commits.

        ``mine``: the prepared jobs of these messages; ``jobs``: all jobs of the same enqueue.
        Raises as ``Backend.enqueue`` does.
        """
        if self.way.outbox is None and _is_open(self.way.after):
            return self._send_later(outgoing, mine)
        try:
            with naming_missing_tables(self.backend.alias, self.way.outbox):
                if self.way.outbox is not None:
                    return self._into_outbox(self.way.outbox, outgoing)
                return self.store(outgoing)
        except EnqueueOutcomeUnknown as error:
            # The caller needs jobs, not messages, to enqueue them again; and all of them, as
            # those of other backends may not have been tried.
            raise EnqueueOutcomeUnknown(jobs, str(error.__cause__ or error)) from error.__cause__

    def store(self, outgoing: Sequence[Outgoing]) -> list[Enqueued]:
        """Enqueue messages in the backend itself."""
        return asking_to_enqueue(self.backend, outgoing, self.on_conflict, again=self.again)

    def _into_outbox(self, home: str, outgoing: Sequence[Outgoing]) -> list[Enqueued]:
        """Write messages to an outbox. Its relay skips known jobs; the check is for the answer."""
        existing: set[str] = set()
        if self.again:
            jobs = {message.id: message.terms.queue for message in outgoing}
            existing = outbox.known_ids(home, self.backend, jobs)
        new = [message for message in outgoing if message.id not in existing]
        if new:
            outbox.write(home, self.backend.alias, new)
        return [Enqueued(message.id, created=message.id not in existing) for message in outgoing]

    def _send_later(self, outgoing: Sequence[Outgoing], mine: Sequence[Any]) -> list[Enqueued]:
        for message in outgoing:
            if message.terms.unique_key is not None:
                raise NotSupported(
                    f"unique_key={message.terms.unique_key!r}: the backend "
                    f"{self.backend.alias!r} is given the job when the open transaction on "
                    f"{self.way.after!r} is committed, and knows only then whether a live job "
                    "holds the key; enqueue it after the transaction, or use an idempotency_key"
                )
        _push_of(connections[str(self.way.after)], self).add(outgoing, mine)
        return [Enqueued(message.id, created=True) for message in outgoing]


def _push_of(connection: BaseDatabaseWrapper, route: Route) -> Push:
    """The push of the innermost savepoint: one for all jobs enqueued there one by one."""
    hooks, savepoints = connection.run_on_commit, set(connection.savepoint_ids)
    last: Any
    if in_test := any(map(_is_of_testcase, connection.atomic_blocks)):
        # Tests that capture hooks remember how many there were: none may be moved.
        place = len(hooks)
        last = next((hook for _, hook, *_ in reversed(hooks) if isinstance(hook, Push)), None)
    else:
        place = bisect_left(hooks, 1, key=lambda hook: not isinstance(hook[1], Push))
        last = hooks[place - 1][1] if place else None
    if last and last.takes_more(route, savepoints):
        return last  # type: ignore[no-any-return]  # hooks may be anything
    push = Push(route, savepoints, last.lost if last else Lost())
    connection.on_commit(push)
    if not in_test:
        hooks.insert(place, hooks.pop())
    connection.on_commit(push.lost.raise_once)
    return push


def _is_open(alias: str | None) -> bool:
    """Whether the caller has an open transaction on a database.

    The transaction of a test case does not count: it is never committed, and without it the code
    under test would run in none.
    """
    if alias is None:
        return False
    connection: BaseDatabaseWrapper = connections[alias]
    return connection.in_atomic_block and not all(map(_is_of_testcase, connection.atomic_blocks))


def _is_of_testcase(block: object) -> bool:
    return getattr(block, "_from_testcase", False)


class Push:
    """Enqueues jobs in their backend after the commit of the transaction they belong to."""

    def __init__(self, route: Route, savepoints: set[Any], lost: Lost) -> None:
        self.lost = lost
        self._route = route
        self._savepoints = savepoints
        self._jobs: list[Any] = []
        self._outgoing: list[Outgoing] = []
        self._is_done = False

    def takes_more(self, route: Route, savepoints: set[Any]) -> bool:
        """Whether jobs of this route and these savepoints may join the push."""
        return not self._is_done and self._route == route and self._savepoints == savepoints

    def add(self, outgoing: Sequence[Outgoing], jobs: Sequence[Any]) -> None:
        """Add jobs to the push."""
        self._outgoing += outgoing
        self._jobs += jobs

    def __call__(self) -> None:
        self._is_done = True
        for start in range(0, len(self._outgoing), PUSHED_AT_ONCE):
            part = slice(start, start + PUSHED_AT_ONCE)
            try:
                if self.lost.stop is None:
                    self._route.store(self._outgoing[part])
                    continue
                error: BaseException = self.lost.stop
            except BaseException as raised:  # noqa: BLE001 - whatever it is, the jobs are lost
                error = raised
            self.lost.add(self._route.backend.alias, self._jobs[part], error)


class Lost:
    """The jobs of a transaction that did not reach their backends."""

    def __init__(self) -> None:
        self._jobs: list[Any] = []
        self._backends: list[str] = []
        self._error: Exception | None = None
        self.stop: BaseException | None = None

    def add(self, backend: str, jobs: Sequence[Any], error: BaseException) -> None:
        """Log lost jobs, and keep them until they are raised.

        After a stop, such as a handler's timeout, nothing more is pushed.
        """
        self._jobs += jobs
        self._backends.append(backend)
        if isinstance(error, Exception):
            self._error = error
        else:
            self.stop = error
        ids = ", ".join(job.id for job in jobs)
        events.emit(events.PushLost(backend=backend, job_ids=ids, count=len(jobs), error=error))

    def raise_once(self) -> None:
        """The first time, raise one PushFailed for all of them, or what stopped the pushes."""
        if self.stop is not None:
            stop, self.stop, self._error = self.stop, None, None
            raise stop
        if self._error is None:
            return
        cause, jobs, names = self._error, self._jobs, dict.fromkeys(self._backends)
        self._error, self._jobs, self._backends = None, [], []
        raise PushFailed(", ".join(names), jobs, _cause(cause)) from cause


def _cause(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, EnqueueOutcomeUnknown) else error
    shown = cause or error
    return str(shown) if isinstance(shown, JobsError) else f"{type(shown).__name__}: {shown}"


class Way(NamedTuple):
    """How a job gets to its backend, according to the settings.

    ``outbox``: the alias of the database whose outbox it goes through, or None. ``after``: the
    alias whose open transaction has to be committed first, or None.
    """

    outbox: str | None = None
    after: str | None = None


@lru_cache(maxsize=256)
def way(settings: JobsSettings, backend: Backend, queue: str) -> Way:
    """The way to a backend for the jobs of a queue."""
    config = settings.backends.get(backend.alias)
    if config is None or backend.runs_at_enqueue:
        return Way()
    wanted = settings.queue(queue).outbox if settings.backend_for(queue) == config.alias else None
    if config.outbox if wanted is None else wanted:
        home = outbox_database(settings, config.alias)
        if home is not None:
            return Way(outbox=home)
    setting = config.on_commit
    if setting is None:
        setting = not backend.capabilities.transactional_enqueue
    after = DEFAULT_DB_ALIAS if setting is True else setting or None
    return Way(after=None if after is None or joins(backend, after) else after)


def check(backend: Backend, unique_key: str | None, result_ttl: float) -> None:
    """Raise NotSupported for options that an outbox cannot honour."""
    if unique_key is not None:
        raise NotSupported(
            f"unique_key={unique_key!r}: whether a live job holds the key is known only to the "
            f"backend {backend.alias!r}, and a job in its outbox reaches it later; use an "
            "idempotency_key, which is looked at when the job runs, or a queue with OUTBOX False"
        )
    if result_ttl < backend.shortest_memory:
        raise NotSupported(
            f"result_ttl={result_ttl:g}: the backend {backend.alias!r} tells by its result that a "
            "job from the outbox has ended and must not come twice; keep it for at least "
            f"{backend.shortest_memory:g} seconds"
        )
