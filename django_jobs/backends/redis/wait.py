"""Waiting for work: blocked on lists to which scripts push an entry for new jobs.

An entry wakes one worker. It is only a hint: the worker then looks which jobs are due. No
command blocks for longer than a slice, and its socket timeout is a little longer, so that a
lost server is noticed and a worker that stops does not wait.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from redis import exceptions

from django_jobs.backends.redis.connection import is_of_a_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.redis.connection import Connection
    from django_jobs.backends.redis.keys import Layout

SLICE_SECONDS = 1.0
NOTIFIED_FACTOR = 2.0
"""By how much less often a worker polls because it is woken for new jobs."""


class Waiting:
    """The waits of one process on one backend's queues."""

    def __init__(
        self,
        connection: Connection,
        layout: Layout,
        look: Callable[[Sequence[str]], float | None],
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._look = look
        self._client: Any = None
        self._pid = 0
        self._stops = 0
        self._bell = threading.Condition()
        self._mine = threading.local()

    def can_block(self, queues: Sequence[str]) -> bool:
        """Whether one command can wait for all of the queues: in a cluster, for one only."""
        return bool(queues) and (not self._layout.clustered or len(queues) == 1)

    def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Whether there may be work; False when the time is over and none was seen."""
        if self._was_stopped():
            return False
        deadline = time.monotonic() + timeout
        while True:
            due_in = self._look(queues)
            if due_in == 0:
                return True
            left = deadline - time.monotonic()
            if left <= 0 or self._was_stopped():
                return False
            if self._sleep(queues, left if due_in is None else min(left, due_in)):
                return True

    def stop(self) -> None:
        """End all waits soon. In each thread, the next wait to begin ends at once."""
        with self._bell:
            self._stops += 1
            self._bell.notify_all()

    def _was_stopped(self) -> bool:
        seen = getattr(self._mine, "stops", 0)
        self._mine.stops = self._stops
        return bool(seen != self._stops)

    def _sleep(self, queues: Sequence[str], seconds: float) -> bool:
        """Whether a hint arrived in time."""
        until = time.monotonic() + seconds
        stops = self._stops
        while (left := until - time.monotonic()) > 0 and stops == self._stops:
            if not self.can_block(queues):
                with self._bell:
                    self._bell.wait_for(lambda: stops != self._stops, left)
            elif self._blocked(queues, min(left, SLICE_SECONDS)):
                return True
        return False

    def _blocked(self, queues: Sequence[str], seconds: float) -> bool:
        lists = [self._layout.base(queue) + "wake" for queue in queues]
        try:
            # Redis takes shorter timeouts for no timeout, or refuses them.
            return self._own_client().blpop(lists, timeout=max(seconds, 0.01)) is not None
        except (exceptions.RedisError, OSError) as error:
            if not is_of_a_key(error):
                raise self._connection.failed(error) from error
        if not self._remove_other_types(lists):
            with self._bell:
                self._bell.wait(seconds)
        return False

    def _remove_other_types(self, lists: Sequence[str]) -> int:
        """Delete keys that are no lists, and count them: they would block hints of all queues."""
        client = self._own_client()
        try:
            pipe = client.pipeline(transaction=False)
            for name in lists:
                pipe.llen(name)
            lengths = zip(lists, pipe.execute(raise_on_error=False), strict=True)
            odd = [name for name, length in lengths if isinstance(length, Exception)]
            return int(client.delete(*odd)) if odd else 0
        except (exceptions.RedisError, OSError) as error:
            raise self._connection.failed(error) from error

    def _own_client(self) -> Any:
        """A client with a longer timeout: a blocking command answers up to a slice later."""
        if self._client is None or self._pid != os.getpid():
            self._client = self._connection.make(SLICE_SECONDS + self._connection.timeout)
            self._pid = os.getpid()
        return self._client
