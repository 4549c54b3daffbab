"""A worker's relay: it moves the outbox of the worker's backend.

A worker with threads runs it in a thread of its own, so that a broker or database that hangs does
not keep jobs from being renewed and settled. Every worker has one. A queue is moved by one of them
at a time, and if that is killed another one goes on.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_jobs.backends.database.wait import SURE_FACTOR, Glance, Watch
from django_jobs.outbox.insert import hinted
from django_jobs.outbox.relay import Moved
from django_jobs.retry import Backoff, spread
from django_jobs.telemetry import events
from django_jobs.worker.store import FIRST_PAUSE, LONGEST_PAUSE, close_idle_connections

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.outbox.relay import Relay

END_PATIENCE = 0.3
LOOK_SECONDS = 1.0
"""How long new jobs of other queues wait at most while one queue is stuck."""
NOTHING = Moved(0, left=False)


class Relaying:
    """Runs the steps of a relay when they are due. A failed step is reported and repeated."""

    def __init__(self, relay: Relay | None, poll_interval: float) -> None:
        self.relay = relay
        self._poll_interval = poll_interval
        self._due_at = 0.0 if relay else float("inf")
        self._failing_since: float | None = None
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._reported: dict[str, float] = {}
        self._last: Moved | None = None if relay else NOTHING

    def seconds_left(self) -> float:
        """How long until the next step is due."""
        return max(self._due_at - time.monotonic(), 0.0)

    def hurry(self) -> None:
        """Make the next step due now: a job may just have been enqueued."""
        if self.relay and not self._failing_since:
            self._due_at = 0.0

    def has_nothing(self) -> bool:
        """Whether the last step found nothing to move, for this worker or any other."""
        return self._last == NOTHING

    def step(self) -> Moved | None:
        """Move jobs if a step is due; None if it failed."""
        if self.relay is None or self.seconds_left():
            return NOTHING
        try:
            self._last = self.relay.step()
        except Exception as error:  # noqa: BLE001 - whatever a broker raises, the worker goes on
            self._last = None
            self._fails(error)
            return None
        if self._last.jobs or not self._last.left:
            self._works()
        self._report_queues(self.relay)
        pause = min(self._poll_interval, LOOK_SECONDS if self.relay.stuck else self._poll_interval)
        self._rest(0.0 if self._last.jobs else pause)
        return self._last

    def _rest(self, seconds: float) -> None:
        self._due_at = time.monotonic() + spread(seconds)

    def _fails(self, error: Exception) -> None:
        stuck = self.relay.stuck if self.relay else {}
        of_queues = any(rest.error is error for rest in stuck.values())
        # Perhaps only queues that were reported already have jobs just now.
        is_known = of_queues and stuck.keys() <= self._reported.keys()
        if self._failing_since is None and not is_known:
            self._failing_since = time.monotonic()
            events.emit(events.RelayLost(backend=self._alias, error=error))
        close_idle_connections()
        pause = self._backoff.next()
        self._rest(min(pause, LOOK_SECONDS) if of_queues else pause)

    def _works(self) -> None:
        self._backoff.reset()
        if self._failing_since is not None:
            lasted, self._failing_since = time.monotonic() - self._failing_since, None
            events.emit(events.RelayFound(backend=self._alias, seconds=lasted))

    def _report_queues(self, relay: Relay) -> None:
        """Report once that a queue is stuck while others move, and that it moves again."""
        now = {name: rest for name, rest in relay.stuck.items() if not rest.blamed}
        for name in now.keys() - self._reported:
            events.emit(events.RelayLost(backend=self._alias, queue=name, error=now[name].error))
        for name in self._reported.keys() - now:
            lasted = time.monotonic() - self._reported[name]
            events.emit(events.RelayFound(backend=self._alias, queue=name, seconds=lasted))
        self._reported = {name: rest.since for name, rest in now.items()}

    @property
    def _alias(self) -> str:
        return self.relay.backend.alias if self.relay else ""


class RelayThread:
    """The relay of a worker with children; ``moved`` is called after it has moved something.

    It holds no state that must not be lost: it may hang, or be ended at any point.
    """

    def __init__(
        self, relay: Relay | None, poll_interval: float, hung_after: float, moved: Callable[[], Any]
    ) -> None:
        self._relay = relay
        self._duty = Relaying(relay, poll_interval)
        self._poll_interval = poll_interval
        self._hung_after = hung_after
        self._moved = moved
        self._ended = threading.Event()
        self._busy_since = 0.0
        self._asked = self._answered = 0
        self._wants_answer = False
        self._connections: list[Any] = []
        self._watch: Watch | None = None
        self._thread = threading.Thread(
            target=self._run, args=(relay,), name="django_jobs-relay", daemon=True
        )

    def start(self) -> None:
        """Begin, if there is an outbox."""
        if self._relay is not None:
            self._thread.start()

    def has_nothing(self) -> bool:
        """Whether a step that began after the first call found nothing to move."""
        if self._relay is None:
            return True
        if not self._wants_answer:
            self._wants_answer = True
            self._asked += 1
        return self._answered >= self._asked

    def ask_again(self) -> None:
        """Let ``has_nothing`` wait for a new step."""
        self._wants_answer = False

    def cut_if_hung(self, cut: Callable[[Any], None]) -> None:
        """Break the connections of a step that hangs."""
        since, now = self._busy_since, time.monotonic()
        if since and now - since > self._hung_after:
            self._busy_since = now
            for connection in self._connections:
                cut(connection)

    def end(self) -> None:
        """End soon; a step that hangs ends with the process."""
        self._ended.set()
        if self._watch is not None:
            self._watch.stop()
        if self._thread.ident is not None:
            self._thread.join(END_PATIENCE)

    # --------------------------------------------------------------------- the thread's own part

    def _run(self, relay: Relay) -> None:
        aliases = {relay.home, relay.backend.home}
        self._connections = [connections[alias] for alias in aliases if alias]
        try:
            while not self._ended.is_set():
                self._turn(relay)
        finally:
            connections.close_all()

    def _turn(self, relay: Relay) -> None:
        asked = self._asked
        self._busy_since = time.monotonic()
        try:
            moved = self._duty.step()
        finally:
            self._busy_since = 0.0
        if moved is None or (moved.left and not moved.jobs):
            self._ended.wait(self._duty.seconds_left())
        elif moved.jobs:
            self._moved()
        else:
            self._answered = asked
            self._wait(relay)
            self._duty.hurry()

    def _wait(self, relay: Relay) -> None:
        """Wait until there may be something to move, or the next step is due."""
        try:
            if self._watch is None:
                self._watch = Watch(relay.home, hinted(relay.backend.alias), self._look, hints=True)
            gets_hints = self._watch.gets_hints
            seconds = self._duty.seconds_left() * (SURE_FACTOR if gets_hints else 1.0)
            self._watch.wait(None, min(seconds, self._poll_interval * SURE_FACTOR))
        except Exception:  # noqa: BLE001 - the next step gets the same error, and reports it
            close_idle_connections()
            self._ended.wait(self._duty.seconds_left())

    def _look(self, _queues: Sequence[str] | None) -> Glance:
        due_in = self._relay.due_in() if self._relay else None
        return Glance(0, due_in == 0.0, None, None, None, opens_in=due_in)
