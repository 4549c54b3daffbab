"""One backend's keys and scripts, and which queues there are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from django_jobs.backends.redis.connecting import is_of_a_key, translated
from django_jobs.backends.redis.scripts import SCRIPTS
from django_jobs.conf import get_settings
from django_jobs.definition import QUEUE_NAME
from django_jobs.telemetry.events import emit
from django_jobs.telemetry.trouble_events import BackendSilent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django_jobs.backends.redis.clock import StoreClock
    from django_jobs.backends.redis.connecting import Connection
    from django_jobs.backends.redis.layout import Layout

T = TypeVar("T")

ANNOUNCED_SECONDS = 60.0
TOLD_EVERY_SECONDS = 60.0
LEFT_SECONDS = 5.0
"""So long a queue is left alone that could not be read."""


class Store:
    """Runs scripts on queues by name."""

    def __init__(self, connection: Connection, layout: Layout, backend: str) -> None:
        self.connection = connection
        self.layout = layout
        self.clock: StoreClock
        self._backend = backend
        self._announced: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._left_until: dict[str, float] = {}

    def run(self, name: str, queue: str, args: Sequence[Any]) -> Any:
        """A script on one queue; its first argument is the time."""
        return self.run_on(name, [queue], args)

    def run_on(self, name: str, queues: Sequence[str], args: Sequence[Any]) -> Any:
        """A script on queues that one script can reach."""
        keys = self.layout.keys(*queues)
        return self.connection.run(SCRIPTS[name], keys, [self.clock.arg(), *args])

    def past_unreadable(
        self, queues: Sequence[str], work: Callable[[list[str]], T], *, none: T
    ) -> list[T]:
        """What some work on queues answers, at once, or in parts where one cannot be read.

        A key of another type keeps nobody but its own queue, of which nothing (``none``) is
        answered, and told.
        """
        try:
            return [work(list(queues))]
        except Exception as error:
            if not is_of_a_key(error):
                raise
            if len(queues) == 1:
                self._tell(queues[0], error)
                return [none]
        half = len(queues) // 2
        parts = queues[:half], queues[half:]
        return [one for part in parts for one in self.past_unreadable(part, work, none=none)]

    def readable(self, queues: Iterable[str]) -> list[str]:
        """Those of some queues that were not found unreadable just now."""
        if not self._left_until:
            return list(queues)
        now = time.monotonic()
        return [name for name in queues if self._left_until.get(name, 0.0) <= now]

    def _tell(self, queue: str, error: Exception) -> None:
        now = time.monotonic()
        self._left_until[queue] = now + LEFT_SECONDS
        if self._told.get(queue, 0.0) <= now:
            self._told[queue] = now + TOLD_EVERY_SECONDS
            why = f"a key holds what is none of ours: {error}"
            emit(BackendSilent(backend=self._backend, queue=queue, why=why))

    def each(self, queues: Sequence[str], ask: Callable[[Any, str], Any]) -> list[Any]:
        """The answers of one command for each queue, in one go; None where it cannot be read."""
        if not queues:
            return []

        def work(client: Any) -> Any:
            pipe = client.pipeline(transaction=False)
            for queue in queues:
                ask(pipe, self.layout.base(queue))
            return pipe.execute(raise_on_error=False)

        return [self._heard(one) for one in self.connection.ask(work)]

    def _heard(self, answer: Any) -> Any:
        if not isinstance(answer, Exception):
            return answer
        if is_of_a_key(answer):
            return None
        raise translated(answer)

    def announce(self, queues: Iterable[str]) -> None:
        """See to it that queues are found by who looks through all of them.

        Before anything is stored there, and now and then again, for what tells of queues
        may be on a server that was lost.
        """
        now = time.monotonic()
        new = [name for name in queues if self._announced.get(name, 0.0) <= now]
        if new:
            self.connection.ask(lambda client: client.sadd(self.layout.known_queues, *new))
            self._announced.update(dict.fromkeys(new, now + ANNOUNCED_SECONDS))

    def queues(self) -> list[str]:
        """Every queue that may have something in it."""
        told = self.connection.ask(lambda client: client.smembers(self.layout.known_queues))
        settings = get_settings()
        configured = {
            name for name in settings.queues if settings.backend_for(name) == self._backend
        }
        known = {name.decode("utf-8", "replace") for name in told}
        # What nobody can have enqueued to was written by somebody else.
        return sorted({name for name in known if QUEUE_NAME.fullmatch(name)} | configured)
