"""The threads that talk to the store, so that the supervisor never has to.

One keeps the leases of this worker (``keep_thread``), the other gets new ones (``get_thread``),
each over a connection of its own, so that a slow claim delays no renewal and no settle. Where a
store has one writer, or a second connection gains nothing, one thread does both, and keeping
comes first. A call that hangs blocks only its own thread; the supervisor then cuts the
connection, and the call fails.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from django.db import connections

from django_jobs.db.timeouts import StatementLimits, limit_connection
from django_jobs.worker.duties import Tally
from django_jobs.worker.in_process import shortest_lease
from django_jobs.worker.pool.get_thread import Get
from django_jobs.worker.pool.keep_thread import Holdings, Keep
from django_jobs.worker.pool.thread_messages import NOT_IDLE, Shared
from django_jobs.worker.pool.wait_thread import cut_connection
from django_jobs.worker.relay import RelayThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.outbox.relay import Relay
    from django_jobs.worker.pool.shared_memory import Places
    from django_jobs.worker.pool.thread_messages import (
        Finished,
        Idle,
        StoreMessage,
        WakePipe,
    )
    from django_jobs.worker.queues import QueueOrder
    from django_jobs.worker.store import Asker

HANG_SHARE = 3  # a call that makes no progress for this part of a lease is cut
# Before that the server's own time limits end a call, so that the caller gets an answer.
KEEP_STATEMENT_SHARE = 6
GET_STATEMENT_SHARE = 4
LOCK_SHARE = 12
LONGEST_LOCK_SECONDS = 1.0
LAST_LOOKS_SECONDS = 0.05


class StoreThreads:
    """Store I/O of one worker."""

    def __init__(
        self,
        backend: Backend,
        settings: JobsSettings,
        asker: Asker,
        queues: QueueOrder,
        *,
        places: Places,
        poll_interval: float,
        wake: WakePipe,
        relay: Relay | None,
    ) -> None:
        self.news: deque[StoreMessage] = deque()
        self.shortest_lease = lease = shortest_lease(settings)
        self._wake = wake
        self._ends = False
        shared = Shared(
            backend=backend,
            settings=settings,
            asker=asker,
            holdings=Holdings(lease),
            tally=Tally(backend),
            lease=lease,
            report=self._report,
            wake=wake.wake,
            stopped=lambda: self._ends,
        )
        keeping = threading.Condition()
        getting = threading.Condition() if backend.settles_apart else keeping
        self._get = Get(shared, getting, queues, places, poll_interval)
        ended = self._get.fetcher.note_change  # the relay may have moved jobs to a new queue
        self._keep = Keep(shared, keeping, ended)
        self._holdings, self._tally = shared.holdings, shared.tally
        self._relay = RelayThread(relay, poll_interval, lease, ended)
        share = GET_STATEMENT_SHARE
        loops: list[tuple[str, list[Role], threading.Condition, int]]
        if backend.settles_apart:
            loops = [
                ("keep", [self._keep], keeping, KEEP_STATEMENT_SHARE),
                ("get", [self._get], getting, share),
            ]
        else:
            loops = [("store", [self._keep, self._get], keeping, share)]
        self._loops = [
            _Loop(name, backend, roles, changed, lease, lease / share, wake)
            for name, roles, changed, share in loops
        ]

    # ----------------------------------------------------- called from the supervisor's thread

    def start(self) -> None:
        for loop in self._loops:
            loop.start()
        self._get.fetcher.waiter.start()
        self._relay.start()

    @property
    def failed(self) -> BaseException | None:
        """The error that ended one of the threads, which should never end."""
        return next((loop.failed for loop in self._loops if loop.failed is not None), None)

    @property
    def empty(self) -> bool:
        """Whether the last look found nothing due, and nothing has changed since."""
        return self._get.fetcher.empty

    def nothing_comes(self, *, idle: bool) -> bool:
        """Whether the outbox was found empty since this was first asked of an ``idle`` worker."""
        if not idle:
            self._relay.ask_again()
        return idle and self._relay.has_nothing()

    @property
    def has_plenty(self) -> bool:
        """Whether the leases held have so many bytes that no more are fetched ahead."""
        return self._holdings.has_plenty

    @property
    def draining(self) -> bool:
        """Whether an operator asked this worker to end."""
        return self._get.draining

    @property
    def fetching(self) -> bool:
        return self._get.fetcher.fetching

    @property
    def settles_nothing(self) -> bool:
        """Whether the store answers no settles, so that more work would only pile up."""
        return self._keep.is_stuck

    @property
    def has_limited(self) -> bool:
        """Whether it fetches from queues with a rate limit."""
        return self._get.fetcher.has_limited

    @property
    def lacks_lanes(self) -> bool:
        """Whether jobs that have to start at once need an idle lane."""
        return self._get.fetcher.lacks_lanes

    def request_leases(self, received: int, wanted: int, idle: Idle = NOT_IDLE) -> None:
        """Fetch until ``wanted`` more leases have been fetched than have been ``received``.

        From rate-limited queues, only jobs that begin at once in ``idle`` lanes are fetched.
        """
        self._get.fetcher.request(received, wanted, idle)

    def wait_for_limits(self) -> None:
        """From now on, not count as ``empty`` while a rate limit holds back jobs."""
        self._get.fetcher.waits_for_limits = True

    def look_again(self) -> None:
        """There may be work again: not ``empty`` until the next look."""
        self._get.fetcher.note_change()

    def settle(self, finished: list[Finished]) -> None:
        """Settle deliveries; the answers come as news."""
        self._loops[0].add(finished, self._keep.finished)

    def settled_elsewhere(self, lease: Lease, status: str, seconds: float) -> None:
        """A child settled a delivery itself."""
        self._holdings.drop([lease])
        self._tally.ended(lease.queue, status, seconds)
        self._get.fetcher.note_change()

    def cut_if_hung(self) -> None:
        """Break a call that takes so long that leases would be lost."""
        for loop in self._loops:
            loop.cut_if_hung()
        self._relay.cut_if_hung(cut_connection)

    def end(self, *, patience: float) -> None:
        """End when everything is settled, at the latest after ``patience`` seconds."""
        self._ends = True
        until = time.monotonic() + patience
        for loop in self._loops:
            loop.end()
        self._get.fetcher.waiter.end()
        self._relay.end()
        for loop in self._loops:
            loop.join(until)
        self._get.fetcher.waiter.join()

    def _report(self, message: StoreMessage) -> None:
        self.news.append(message)
        self._wake.wake()


class Role(Protocol):
    """A loop body that a thread runs again and again."""

    @property
    def is_over(self) -> bool:
        """Whether it may end."""

    def turn(self) -> bool:
        """Do the next thing; False when there is nothing to do."""

    def seconds_left(self) -> float:
        """How long until there is something to do."""

    def end(self) -> None:
        """Do the last calls to the store."""


class _Loop:
    """One thread with its connection; at each turn the first role with something to do acts."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        roles: Sequence[Role],
        changed: threading.Condition,
        lease: float,
        statement: float,
        wake: WakePipe,
    ) -> None:
        self.failed: BaseException | None = None
        self._backend = backend
        self._roles = roles
        self._changed = changed
        self._hung_after = lease / HANG_SHARE
        lock = min(lease / LOCK_SHARE, LONGEST_LOCK_SECONDS)
        self._limits = StatementLimits(lock=lock, statement=statement, idle=lease)
        self._wake = wake
        self._ends = self._gives_up = False
        self._busy_since = 0.0
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name=f"django_jobs-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, items: Sequence[Any], line: deque[Any]) -> None:
        """Add work for one of the roles."""
        with self._changed:
            line.extend(items)
            self._changed.notify()

    def cut_if_hung(self) -> None:
        since, now = self._busy_since, time.monotonic()
        if since and now - since > self._hung_after:
            self._busy_since = now
            cut_connection(self._connection)

    def end(self) -> None:
        with self._changed:
            self._ends = True
            self._changed.notify()

    def join(self, until: float) -> None:
        self._thread.join(max(until - time.monotonic(), 0.0))
        self._gives_up = True

    # ----------------------------------------------------------------- run in the thread itself

    def _run(self) -> None:
        try:
            self._connect()
            while not (self._ends and (self._gives_up or all(x.is_over for x in self._roles))):
                if not self._busily(self._turn):
                    self._wait()
            for role in self._roles:
                self._busily(role.end)
        except BaseException as error:  # noqa: BLE001 - the supervisor ends the worker for it
            self.failed = error
        finally:
            connections.close_all()
            self._wake.wake()

    def _connect(self) -> None:
        database = self._backend.home
        if database is not None:
            self._connection = connections[database]
            limit_connection(self._connection, self._limits, self._on_progress)

    def _turn(self) -> bool:
        return any(role.turn() for role in self._roles)

    def _busily(self, work: Callable[[], Any]) -> Any:
        self._busy_since = time.monotonic()
        try:
            return work()
        finally:
            self._busy_since = 0.0

    def _on_progress(self) -> None:
        self._busy_since = time.monotonic()

    def _wait(self) -> None:
        with self._changed:
            pause = min(role.seconds_left() for role in self._roles)
            if self._ends:  # giving up does not notify
                pause = min(pause, LAST_LOOKS_SECONDS)
            if pause > 0:
                self._changed.wait(pause)
