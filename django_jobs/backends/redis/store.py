"""One backend's keys and scripts, and which queues there are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django_jobs.backends.redis.scripts import SCRIPTS
from django_jobs.conf import get_settings
from django_jobs.definition import QUEUE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django_jobs.backends.redis.clock import StoreClock
    from django_jobs.backends.redis.connecting import Connection
    from django_jobs.backends.redis.layout import Layout

ANNOUNCED_SECONDS = 60.0


class Store:
    """Runs scripts on queues by name."""

    def __init__(self, connection: Connection, layout: Layout, backend: str) -> None:
        self.connection = connection
        self.layout = layout
        self.clock: StoreClock
        self._backend = backend
        self._announced: dict[str, float] = {}

    def run(self, name: str, queue: str, args: Sequence[Any]) -> Any:
        """A script on one queue; its first argument is the time."""
        return self.run_on(name, [queue], args)

    def run_on(self, name: str, queues: Sequence[str], args: Sequence[Any]) -> Any:
        """A script on queues that one script can reach."""
        keys = self.layout.keys(*queues)
        return self.connection.run(SCRIPTS[name], keys, [self.clock.arg(), *args])

    def each(self, queues: Sequence[str], ask: Callable[[Any, str], Any]) -> list[Any]:
        """The answers of one command for each queue, in one go."""
        if not queues:
            return []

        def work(client: Any) -> Any:
            pipe = client.pipeline(transaction=False)
            for queue in queues:
                ask(pipe, self.layout.base(queue))
            return pipe.execute()

        return list(self.connection.ask(work))

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
