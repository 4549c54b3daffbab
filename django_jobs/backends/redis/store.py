"""Scripts on a backend's queues by name, past servers that are away and keys that are unreadable.

It also keeps the list of the queues there are.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from django_jobs.backends.redis.connection import is_of_a_key, translated
from django_jobs.backends.redis.scripts import SCRIPTS
from django_jobs.conf import get_settings
from django_jobs.definition import QUEUE_NAME
from django_jobs.exceptions import StoreUnavailable
from django_jobs.telemetry.events import BackendSilent, RecordsDropped, emit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from django_jobs.backends.redis.connection import Connection, RedisClock
    from django_jobs.backends.redis.keys import Layout

T = TypeVar("T")

ANNOUNCED_SECONDS = 60.0
SERVED_SECONDS = 60.0
"""How long a queue is listed after it gave a job, whether its name is stored or not."""
REPORTED_SECONDS = 60.0
"""How long a problem is not reported again."""
LEFT_SECONDS = 5.0
"""How long to leave a queue alone that could not be read, or whose server is away."""
TRIES_SHARE = 2
"""A server that is away is left alone for this many times as long as the try took."""
LONGEST_LEFT_SECONDS = 15.0
QUEUES_AT_ONCE = 1000
"""The most queues for one script: more would block the server for too long."""
SHARED_PAUSE_SECONDS = 10.0
"""How long to leave the server of shared keys alone: each try may take a timeout."""


class RedisStore:
    """Runs scripts on queues by name."""

    def __init__(self, connection: Connection, layout: Layout, backend: str) -> None:
        self.connection = connection
        self.layout = layout
        self.clock: RedisClock
        self._backend = backend
        self._announced: dict[str, float] = {}
        """Until when the name of a queue of a cluster need not be stored again."""
        self._served: dict[str, float] = {}
        """Until when a queue that gave a job is listed, though its name may be lost."""
        self._names: set[bytes] = set()
        """The names that were stored, as of the last time they could be read."""
        self._shared_from = float("-inf")
        """When the server of the keys that all queues share is tried again."""
        self._reported_until: dict[str, float] = {}
        """Until when a problem is not reported again: by queue, or by queue and kind."""
        self._left_until: dict[str, float] = {}
        """Until when a queue is left alone."""
        self._away: dict[str, StoreUnavailable] = {}
        """The last error of each queue whose server is away; a queue that answers is removed."""
        self._servers_away: dict[str, tuple[float, StoreUnavailable]] = {}
        """Until when a server that could not be reached is left alone, and its error."""

    def run(self, name: str, queue: str, args: Sequence[Any]) -> Any:
        """Run a script on one queue; its first argument is the time."""
        return self.run_on(name, [queue], args)

    def run_on(self, name: str, queues: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script on queues that one script can reach."""
        keys = self.layout.keys(*queues)
        return self.connection.run(SCRIPTS[name], keys, [self.clock.arg(), *args])

    def past_unreadable(
        self, queues: Sequence[str], work: Callable[[list[str]], T], *, none: T
    ) -> list[T]:
        """The answers of work on queues: at once, or in halves where a queue is unreadable.

        A key of another type stops only its own queue, which is reported and answers ``none``.
        """
        try:
            return [work(list(queues))]
        except Exception as error:
            if not is_of_a_key(error):
                raise
            if len(queues) == 1:
                self.report_unreadable(queues[0], error)
                return [none]
        half = len(queues) // 2
        parts = queues[:half], queues[half:]
        return [answer for part in parts for answer in self.past_unreadable(part, work, none=none)]

    def readable(self, queues: Sequence[str]) -> list[str]:
        """The queues that are not being left alone.

        Raises StoreUnavailable if none is left and a server is away.
        """
        if not self._left_until:
            return list(queues)
        now = time.monotonic()
        readable = [name for name in queues if self._left_until.get(name, 0.0) <= now]
        away = next((error for name in queues if (error := self._away.get(name))), None)
        if away is not None and not readable:
            raise away
        return readable

    def by_group(
        self, queues: Sequence[str], work: Callable[[list[str]], T], *, none: T
    ) -> Iterator[T]:
        """The answers of work on queues, one for each group that one script can reach.

        A cluster's server that is away does not affect queues of the others. Raises
        StoreUnavailable if no server answers.
        """
        groups = [
            group[at : at + QUEUES_AT_ONCE]
            for group in self.layout.groups(self.readable(queues))
            for at in range(0, len(group), QUEUES_AT_ONCE)
        ]
        yield from self.past_away(
            groups,
            lambda group: self.past_unreadable(group, work, none=none),
        )

    def past_away(
        self, groups: Sequence[list[str]], work: Callable[[list[str]], Iterable[T]]
    ) -> Iterator[T]:
        """The answers of work on groups of queues, past servers of a cluster that are away.

        Each try of a server may take a timeout, so a server that could not be reached is left
        alone with all of its queues.
        """
        away: StoreUnavailable | None = None
        answered = False
        for group in groups:
            if outage := self._outage_of(group[0]):
                away = outage
                continue
            began = time.monotonic()
            try:
                answers = work(group)
            except StoreUnavailable as error:
                if not self.layout.clustered:
                    raise
                away = self._note_outage(group[0], error, began)
            else:
                answered = True
                self._away.pop(group[0], None)
                yield from answers
        if away is not None and not answered:
            raise away

    def report_unreadable(self, queue: str, error: Exception) -> None:
        """Leave a queue alone for a while because a key holds something else, and report it."""
        self._leave(queue, f"a key holds what is none of ours: {error}")

    def is_away(self, queues: Sequence[str] | None) -> bool:
        """Whether the server of one of these queues, or of any, did not answer the last time."""
        if queues is None:
            return bool(self._away)
        return any(name in self._away or self._outage_of(name) for name in queues)

    def _outage_of(self, queue: str) -> StoreUnavailable | None:
        """The error of a queue's server while that is left alone."""
        if not self._servers_away:
            return None
        server = self._server_of(queue)
        until, error = self._servers_away.get(server, (0.0, None))
        if until > time.monotonic():
            return error
        self._servers_away.pop(server, None)
        return None

    def _note_outage(self, queue: str, error: StoreUnavailable, began: float) -> StoreUnavailable:
        """Leave a queue alone, and all others of its server if that could not be reached."""
        error.spares_others = True
        self._away[queue] = error
        self._leave(queue, f"its server is away: {error}")
        if not error.answered:
            now = time.monotonic()
            pause = min(max((now - began) * TRIES_SHARE, LEFT_SECONDS), LONGEST_LEFT_SECONDS)
            self._servers_away[self._server_of(queue)] = (now + pause, error)
        return error

    def _server_of(self, queue: str) -> str:
        return self.connection.server_of(self.layout.base(queue))

    def _leave(self, queue: str, why: str) -> None:
        self._left_until[queue] = time.monotonic() + LEFT_SECONDS
        if self._is_news(queue):
            emit(BackendSilent(backend=self._backend, queue=queue, why=why))

    def report_dropped(self, queue: str, error: BaseException) -> None:
        """Report now and then that results and records of failed runs do not fit in Redis."""
        if self._is_news(f"{queue}, full"):
            emit(RecordsDropped(backend=self._backend, queue=queue, error=error))

    def _is_news(self, subject: str) -> bool:
        now = time.monotonic()
        if self._reported_until.get(subject, 0.0) > now:
            return False
        self._reported_until[subject] = now + REPORTED_SECONDS
        return True

    def each(self, queues: Sequence[str], ask: Callable[[Any, str], Any]) -> list[Any]:
        """One command's answers for each queue, in one pipeline; None for an unreadable key."""
        if not queues:
            return []

        def work(client: Any) -> Any:
            pipe = client.pipeline(transaction=False)
            for queue in queues:
                ask(pipe, self.layout.base(queue))
            return pipe.execute(raise_on_error=False)

        return [_checked(answer) for answer in self.connection.ask(work)]

    def shared(self, work: Callable[[], T], otherwise: T) -> T:
        """The answer of work on the keys that all queues share.

        In a cluster these keys are on a server of their own. While that is away, the answer is
        ``otherwise``, and the queues on other servers go on.
        """
        if time.monotonic() < self._shared_from:
            return otherwise
        try:
            return work()
        except StoreUnavailable as error:
            if not self.layout.clustered:
                raise
            self._shared_from = time.monotonic() + SHARED_PAUSE_SECONDS
            if self._is_news(""):
                why = f"the server of what queues share is away: {error}"
                emit(BackendSilent(backend=self._backend, queue="*", why=why))
            return otherwise

    def announce(self, queues: Iterable[str]) -> None:
        """Store the names of queues of a cluster, so that they are listed.

        Called before anything is stored in them. The names are stored again now and then, as
        their server may have lost them. (Without a cluster, the script that stores a job stores
        the name.) While that server is away, queues announced before are used all the same, and
        a new queue is refused: no worker might find its jobs.
        """
        now = time.monotonic()
        new = [name for name in queues if self._announced.get(name, 0.0) <= now]
        if not new:
            return

        def add() -> bool:
            self._ask_names(lambda client: client.sadd(self.layout.known_queues, *new))
            return True

        were_known = all(name in self._announced for name in new)
        is_stored = self.shared(add, otherwise=False) if were_known else add()
        seconds = ANNOUNCED_SECONDS if is_stored else SHARED_PAUSE_SECONDS
        self._announced.update(dict.fromkeys(new, now + seconds))

    def _ask_names(self, work: Callable[[Any], Any]) -> Any:
        """The answer of work on the set of names. A key of another type is deleted first."""
        try:
            return self.connection.ask(work)
        except Exception as error:
            if not is_of_a_key(error):
                raise
        self._announced.clear()
        self.connection.ask(lambda client: client.delete(self.layout.known_queues))
        return self.connection.ask(work)

    def served(self, queue: str) -> None:
        """Note that a queue gave a job, and so exists."""
        self._served[queue] = time.monotonic() + SERVED_SECONDS

    def forget(self, queues: Iterable[str]) -> None:
        """Forget queues that are empty and no longer listed."""
        for name in queues:
            for cache in (
                self._served,
                self._announced,
                self._reported_until,
                self._left_until,
                self._away,
            ):
                cache.pop(name, None)

    def queues(self) -> list[str]:
        """Every queue that may have something in it."""
        key = self.layout.known_queues
        self._names = self.shared(
            lambda: self._ask_names(lambda client: client.smembers(key)), self._names
        )
        raw_names = self._names | self._unnamed()
        settings = get_settings()
        configured = {
            name for name in settings.queues if settings.backend_for(name) == self._backend
        }
        names = {name.decode("utf-8", "replace") for name in raw_names}
        # A name that is no queue name was not written by us.
        return sorted({name for name in names if QUEUE_NAME.fullmatch(name)} | configured)

    def _unnamed(self) -> set[bytes]:
        """Queues that gave a job lately but whose names were lost; the names are stored again."""
        now = time.monotonic()
        self._served = {name: until for name, until in self._served.items() if until > now}
        missing = {name.encode() for name in self._served} - self._names
        if missing:
            key = self.layout.known_queues
            # A full server stores no name; this process lists the queue all the same.
            with suppress(StoreUnavailable):
                self.shared(
                    lambda: self._ask_names(lambda client: client.sadd(key, *missing)), None
                )
        return missing


def _checked(answer: Any) -> Any:
    if not isinstance(answer, Exception):
        return answer
    if is_of_a_key(answer):
        return None
    raise translated(answer)
