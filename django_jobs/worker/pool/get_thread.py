"""The get thread: claims leases for this worker, and does the housekeeping for all workers.

These calls may take a while, or hang. None of them renews or settles a lease.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_jobs.backends.base import Cancels, LimitsRates, Reconnects, wait_for_work
from django_jobs.worker.duties import Duties, Presence
from django_jobs.worker.pool.keep_thread import LOOKS_PER_LEASE
from django_jobs.worker.pool.thread_messages import NOT_IDLE, Fetched, StopAsked
from django_jobs.worker.pool.wait_thread import Waiter
from django_jobs.worker.store import Store, spares_others

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Sequence

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.worker.pool.shared_memory import Places
    from django_jobs.worker.pool.thread_messages import Idle, Shared
    from django_jobs.worker.queues import QueueOrder

LANE_SECONDS = 0.05  # the pause between looks while no lane is free for rate-limited jobs
ASK_SECONDS = 0.02
VAIN_SECONDS = 0.1
OWED_SECONDS = 2.0
# After the last available job: it starts sooner while no thread competes for the processor.
BREATH_SECONDS = 0.002


class Fetcher:
    """Fetches leases, and decides when to look for work again. ``changed`` wakes its thread."""

    def __init__(
        self,
        backend: Backend,
        settings: JobsSettings,
        queues: QueueOrder,
        poll_interval: float,
        changed: threading.Condition,
    ) -> None:
        self.fetching = self.waits_for_limits = False
        self.waiter = Waiter(backend, queues, poll_interval, self.hint)
        self._backend = backend
        self._settings = settings
        self._queues = queues
        self._changed = changed
        self._target = self._fetched = 0
        self._changes, self._seen_empty, self._looked_again = 0, -1, False
        self._hints, self._hints_seen = 0, 0
        self._look_at = 0.0
        self._was_short = self._suspends = self._ended_early = False
        self.has_limited = False
        self._idle = NOT_IDLE
        self._passes_over = False
        self._owed: list[str] = []
        self._ask_at = self._owed_until = 0.0
        self._received = self._coming = 0

    @property
    def empty(self) -> bool:
        """Whether the last look found nothing due, and nothing has changed since."""
        return self._seen_empty == self._changes

    @property
    def lacks_lanes(self) -> bool:
        """Whether jobs that have to start at once need a lane, or are on their way to it."""
        return self._is_owed or self._received < self._coming

    @property
    def _is_owed(self) -> bool:
        """Whether a queue with a rate limit had jobs to start when no lane was idle."""
        return bool(self._owed) and time.monotonic() < self._owed_until

    def request(self, received: int, wanted: int, idle: Idle = NOT_IDLE) -> None:
        """Fetch until ``wanted`` more leases have been fetched than the supervisor has received.

        After a suspect, or with plenty of bytes held, fetching is suspended until the supervisor
        has received all of them and requests again.
        """
        target, self._idle, self._received = received + wanted, idle, received
        if target != self._target or self._suspends or self._awaits_idle:
            with self._changed:
                self._suspends = self._suspends and received < self._fetched
                self._target = target
                self._changed.notify()

    def suspend(self) -> None:
        """Fetch nothing until the supervisor has received everything and requests again."""
        self._suspends = True

    def hint(self) -> None:
        """There may be work."""
        with self._changed:
            self._hints, self._look_at = self._hints + 1, 0.0
            self._changed.notify()

    def note_change(self) -> None:
        """A job has ended or moved, and may have made others due: ones it enqueued, or a retry."""
        with self._changed:
            self._changes, self._look_at, self._looked_again = self._changes + 1, 0.0, False
            self._changed.notify()

    def seconds_left(self) -> float:
        """How long until the next look."""
        if self._awaits_idle and not self._suspends:
            return 0.0
        if self._target <= self._fetched or self._suspends:
            return float("inf")
        look_at = self._look_at
        if not self._passes_over:  # if it did, the wait thread is not armed
            look_at = min(look_at, self.waiter.trusted_until)
        return look_at - time.monotonic()

    @property
    def _has_idle(self) -> bool:
        """Whether lanes are idle, and no fetched lease is on its way to them."""
        idle = self._idle
        return idle.lanes > 0 and idle.most > 0 and idle.received == self._fetched

    @property
    def _awaits_idle(self) -> bool:
        """Whether rate-limited queues were passed over, and can now be fetched from."""
        return (self._passes_over or bool(self._owed)) and self._has_idle

    def begin(self) -> bool:
        """Whether it is time to look; if it is, the look counts as begun."""
        with self._changed:
            self.fetching = self.seconds_left() <= 0
        return self.fetching

    def look(self) -> Fetched | None:
        """Fetch the requested leases from the first queue that has any."""
        self.waiter.cut_if_hung()
        changes, hints = self._changes, self._hints
        # After a short fetch there is hardly more: asking is cheaper than trying.
        awaited = self._awaits_idle
        tries = not self._was_short or awaited or hints != self._hints_seen or self._may_be_work()
        wanted = self._target - self._fetched
        if wanted <= 0 and not awaited:  # the request may have changed
            return None
        if tries and (fetched := self._fetch(wanted)):
            self._hints_seen = hints
            return fetched
        if wanted <= 0:
            return None
        if tries and self._ended_early:
            with self._changed:  # at the next turn, which comes at once
                self._was_short, self._look_at = False, 0.0
            return None
        if self._passes_over:
            with self._changed:  # or as soon as a lane is idle
                self._seen_empty = -1
                self._look_at = time.monotonic() + LANE_SECONDS
            return None
        if tries and not (self._looked_again and hints == self._hints_seen) and self._may_be_work():
            # The work that just ended, or the source of the hint, enqueued to a new queue.
            self._looked_again, self._hints_seen = True, hints
            self._queues.poll_again()
        else:
            self._note_empty(changes, hints)
        return None

    def _fetch(self, wanted: int) -> Fetched | None:
        self._ended_early = False
        order, owed = self._queues.next(), self._owed if self._has_idle else []
        if owed:  # they were due when there was no lane
            self._ask_at = time.monotonic() + VAIN_SECONDS
            order = [*owed, *(name for name in order if name not in owed)]
        try:
            return self._from_first(order, wanted)
        finally:
            if owed:
                self._owed = []

    def _from_first(self, order: Sequence[str], wanted: int) -> Fetched | None:
        """Fetch from the first of these queues that has anything due."""
        backend = self._backend
        limited = backend.rate_limited(order) if isinstance(backend, LimitsRates) else ()
        self.has_limited, self._passes_over = bool(limited), False
        failed: Exception | None = None
        for seconds, room, group in self._groups(order, limited):
            if room == 0:
                self._pass_over(group)
            most = wanted if room is None else room
            if most <= 0:
                continue
            asked_at = time.monotonic()
            try:
                leases = self._backend.fetch(group, most, seconds)
            except Exception as error:
                if not spares_others(error):
                    raise
                failed = failed or error
                continue
            if leases:
                self._note_fetched(leases, most, is_limited=room is not None)
                return Fetched(leases, seconds, asked_at)
            self._ended_early = self._ended_early or self._backend.fetch_ended_early
        if failed is not None:  # or the queues would seem empty
            raise failed
        return None

    def _note_fetched(self, leases: Sequence[Lease], most: int, *, is_limited: bool) -> None:
        self._fetched += len(leases)
        self._suspends = leases[-1].suspect
        self._seen_empty, self._looked_again = -1, False
        self.waiter.disarm()
        self._was_short = len(leases) < most
        if self._was_short:
            self._look_at = time.monotonic() + BREATH_SECONDS
        if is_limited:
            self._ask_at, self._coming = 0.0, self._fetched

    def _pass_over(self, queues: Sequence[str]) -> None:
        """No lane is idle for these queues: keep one free if they have jobs to start."""
        self._passes_over = True
        now, owed = time.monotonic(), self._owed if self._is_owed else []
        if now >= self._ask_at and not set(queues) <= set(owed):
            self._ask_at = now + ASK_SECONDS
            if wait_for_work(self._backend, queues, 0.0):
                new = [name for name in queues if name not in owed]
                self._owed, self._owed_until = [*owed, *new], now + OWED_SECONDS

    def _may_be_work(self) -> bool:
        return wait_for_work(self._backend, self._queues.watched, 0.0)

    def _note_empty(self, changes: int, hints: int) -> None:
        backend, watched = self._backend, self._queues.watched
        # An unreachable server may not answer the calls below.
        still_comes = isinstance(backend, Reconnects) and backend.skips(watched)
        if not still_comes and self.waits_for_limits:
            still_comes = isinstance(backend, LimitsRates) and backend.withholds(watched)
        with self._changed:
            if changes != self._changes:
                return
            self._seen_empty = -1 if still_comes else changes
            if hints == self._hints:
                self._look_at = float("inf")
                self.waiter.arm()

    def refresh_queues(self) -> None:
        """Ask for the names of queues again, when it is time; no job waits for it."""
        self._queues.refresh()

    def _groups(
        self, queues: Sequence[str], limited: Collection[str]
    ) -> list[tuple[float, int | None, list[str]]]:
        """Group neighbouring queues that one fetch can serve, in their order.

        Each group has the length of its leases and, if rate-limited, how many of its jobs would
        start at once.
        """
        groups: list[tuple[float, int | None, list[str]]] = []
        has_idle = self._has_idle
        for queue in queues:
            seconds, room = self._settings.effective_lease(queue), None
            if queue in limited:
                room = self._idle.room(queue) if has_idle else 0
            if groups and groups[-1][:2] == (seconds, room):
                groups[-1][2].append(queue)
            else:
                groups.append((seconds, room, [queue]))
        return groups


ASK_HELD_SECONDS = 2.0


class Get:
    """Claims jobs, does the housekeeping, and keeps the worker's row up to date."""

    def __init__(
        self,
        shared: Shared,
        changed: threading.Condition,
        queues: QueueOrder,
        places: Places,
        poll_interval: float,
    ) -> None:
        backend = shared.backend
        self.store = Store(
            shared.asker.outage, shared.stopped, lambda: wait_for_work(backend, None, 0.0)
        )
        self.fetcher = Fetcher(backend, shared.settings, queues, poll_interval, changed)
        self._backend = backend
        self._holdings = shared.holdings
        self._lease = shared.lease
        self._report = shared.report
        self._stopped = shared.stopped
        self._wake = shared.wake
        presence = Presence(
            backend,
            str(queues),
            places.processes,
            places.concurrency,
            shared.holdings.__len__,
        )
        self._duties = Duties(
            backend, shared.lease, shared.asker.outage, presence, tally=shared.tally
        )
        self._kill_grace = shared.settings.kill_grace
        self._ask_at = 0.0
        self._duties_wait = True
        self._may_have_unanswered = False

    @property
    def draining(self) -> bool:
        """Whether an operator asked this worker to end."""
        return self._duties.draining

    @property
    def is_over(self) -> bool:
        """Whether it may end: always, since no work of its own is left open."""
        return True

    def seconds_left(self) -> float:
        """How long until there is something to do."""
        if self._stopped():
            return float("inf")
        # At least this often, so that requests to stop reach jobs of a busy worker too.
        most = self._lease / LOOKS_PER_LEASE
        return min(most, self._duties.seconds_left(), self.fetcher.seconds_left())

    def turn(self) -> bool:
        """Claim jobs or do housekeeping; False when nothing is left to do now."""
        if self._stopped():
            return False
        if self.store.fails:  # to notice soon that it is back, even if no jobs are requested
            self._duties.housekeeping.hurry()
        if self._may_have_unanswered:
            # No proof of a working store: often there is nothing to return.
            self.store.call(self._return_unanswered, proves=False)
            return True
        # Work comes first, for children wait for it; but housekeeping is never skipped twice.
        if self._duties_wait or not self.fetcher.begin():
            self._duties_wait = False
            asks = not self._duties.seconds_left()
            self.store.call(self._do_duties, proves=asks)
            return self.fetcher.seconds_left() <= 0
        self._duties_wait = True
        try:
            self.store.call(self._fetch)
        finally:
            self.fetcher.fetching = False
            self._wake()
        return True

    def _do_duties(self) -> None:
        if self._duties.step():
            self.fetcher.hint()
        do = self._duties.do
        do("look for queues", self.fetcher.refresh_queues)
        do("ask which jobs are to stop", self._ask_for_stops)
        if isinstance(self._backend, Reconnects):
            self._backend.return_unanswered()  # leases that could not be given back when claimed

    def _ask_for_stops(self) -> None:
        """Ask which of the jobs held for a while are to stop, and report them."""
        if (now := time.monotonic()) < self._ask_at:
            return
        self._ask_at = now + ASK_HELD_SECONDS
        if not isinstance(self._backend, Cancels):
            return
        if (held := self._holdings.long_held(ASK_HELD_SECONDS)) and (
            asked := self._backend.asked_to_stop(held)
        ):
            self._report(StopAsked(frozenset(asked), now + self._kill_grace))

    def _fetch(self) -> None:
        self._may_have_unanswered = True  # until the call returns
        fetched = self.fetcher.look()
        self._may_have_unanswered = False
        if fetched:
            self._holdings.add(fetched.leases, fetched.lease_seconds, fetched.asked_at)
            if self._holdings.has_plenty:
                self.fetcher.suspend()
            self._report(fetched)

    def _return_unanswered(self) -> None:
        if isinstance(self._backend, Reconnects):
            self._backend.return_unanswered()
        self._may_have_unanswered = False

    def end(self) -> None:
        """Remove this worker from the store. If the store does not answer, its rows expire."""
        self.store.call(self._return_unanswered, proves=False)
        self.store.call(self._duties.end, proves=False)
