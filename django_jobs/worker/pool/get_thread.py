"""What a worker gets from its store: leases, and the housekeeping it does for everybody.

These calls may take a while, or hang. None of them renews or settles what this worker has.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_jobs.backends.base import Cancels, LimitsRates, Reconnects
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


# Looking for work, and knowing when there is none and when to look again.


LANE_SECONDS = 0.05  # so often it looks again while there is no lane for what must start at once
ASK_SECONDS = 0.02
VAIN_SECONDS = 0.1
OWED_SECONDS = 2.0
# After the last job that is to be had: it starts the sooner when nobody is busy meanwhile.
BREATH_SECONDS = 0.002


class Looking:
    """What the store's thread knows about work to be had. ``changed`` wakes that thread."""

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
        self._was_short = self._suspends = self._goes_on = False
        self.has_limited = False
        self._idle = NOT_IDLE
        self._passes_over = False
        self._owed: list[str] = []
        self._ask_at = self._owed_until = 0.0
        self._received = self._coming = 0

    @property
    def empty(self) -> bool:
        """Whether nothing was due when it was last looked, and nothing has happened since."""
        return self._seen_empty == self._changes

    @property
    def lacks_lanes(self) -> bool:
        """Whether jobs that have to start at once need a lane, or are on their way to one."""
        return self._is_owed or self._received < self._coming

    @property
    def _is_owed(self) -> bool:
        """Whether a queue with a rate limit had jobs to start when no lane was idle."""
        return bool(self._owed) and time.monotonic() < self._owed_until

    def wish(self, received: int, wanted: int, idle: Idle = NOT_IDLE) -> None:
        """Fetch until so many leases more have been fetched than have been received.

        After a suspect, or with plenty of bytes, nothing is until whoever has them says anew.
        """
        target, self._idle, self._received = received + wanted, idle, received
        if target != self._target or self._suspends or self._awaits_idle:
            with self._changed:
                self._suspends = self._suspends and received < self._fetched
                self._target = target
                self._changed.notify()

    def suspend(self) -> None:
        """Fetch nothing until a new wish is made by who has received all that was fetched."""
        self._suspends = True

    def hint(self) -> None:
        """There may be work."""
        with self._changed:
            self._hints, self._look_at = self._hints + 1, 0.0
            self._changed.notify()

    def something_ended(self) -> None:
        """It may have made others due: jobs it enqueued, or itself again."""
        with self._changed:
            self._changes, self._look_at, self._looked_again = self._changes + 1, 0.0, False
            self._changed.notify()

    def seconds_left(self) -> float:
        """How long there is no reason to look."""
        if self._awaits_idle and not self._suspends:
            return 0.0
        if self._target <= self._fetched or self._suspends:
            return float("inf")
        look_at = self._look_at
        if not self._passes_over:  # else nobody waits at the store
            look_at = min(look_at, self.waiter.trusted_until)
        return look_at - time.monotonic()

    @property
    def _has_idle(self) -> bool:
        """Whether lanes are idle, and nothing that was fetched is on its way to them."""
        idle = self._idle
        return idle.lanes > 0 and idle.most > 0 and idle.received == self._fetched

    @property
    def _awaits_idle(self) -> bool:
        """Whether queues with a rate limit were passed over, and no longer have to be."""
        return (self._passes_over or bool(self._owed)) and self._has_idle

    def begin(self) -> bool:
        """Whether it is time to look; if it is, the look counts as begun."""
        with self._changed:
            self.fetching = self.seconds_left() <= 0
        return self.fetching

    def look(self) -> Fetched | None:
        """Fetch what is wanted, from the first queue that has any."""
        self.waiter.cut_if_hung()
        changes, hints = self._changes, self._hints
        # When there was less than wanted, there is hardly more: asking is cheaper than trying.
        awaited = self._awaits_idle
        tries = not self._was_short or awaited or hints != self._hints_seen or self._may_be_work()
        wanted = self._target - self._fetched
        if wanted <= 0 and not awaited:  # wishes change at any time
            return None
        if tries and (fetched := self._fetch(wanted)):
            self._hints_seen = hints
            return fetched
        if wanted <= 0:
            return None
        if tries and self._goes_on:
            with self._changed:  # at the next turn, which comes at once
                self._was_short, self._look_at = False, 0.0
            return None
        if self._passes_over:
            with self._changed:  # or as soon as a lane is idle
                self._seen_empty = -1
                self._look_at = time.monotonic() + LANE_SECONDS
            return None
        if tries and not (self._looked_again and hints == self._hints_seen) and self._may_be_work():
            # What was just done, or whoever hinted, enqueued to a queue that is new.
            self._looked_again, self._hints_seen = True, hints
            self._queues.look_again()
        else:
            self._nothing(changes, hints)
        return None

    def _fetch(self, wanted: int) -> Fetched | None:
        self._goes_on = False
        order, owed = self._queues.next(), self._owed if self._has_idle else []
        if owed:  # it was their turn when there was no lane
            self._ask_at = time.monotonic() + VAIN_SECONDS
            order = [*owed, *(name for name in order if name not in owed)]
        try:
            return self._from_first(order, wanted)
        finally:
            if owed:
                self._owed = []

    def _from_first(self, order: Sequence[str], wanted: int) -> Fetched | None:
        """Fetch from the first of some queues that has anything."""
        backend = self._backend
        limited = backend.rate_limited(order) if isinstance(backend, LimitsRates) else ()
        self.has_limited, self._passes_over = bool(limited), False
        failed: Exception | None = None
        for seconds, room, alike in self._groups(order, limited):
            if room == 0:
                self._pass_over(alike)
            most = wanted if room is None else room
            if most <= 0:
                continue
            asked_at = time.monotonic()
            try:
                leases = self._backend.fetch(alike, most, seconds)
            except Exception as error:
                if not spares_others(error):
                    raise
                failed = failed or error
                continue
            if leases:
                self._took(leases, most, is_limited=room is not None)
                return Fetched(leases, seconds, asked_at)
            self._goes_on = self._goes_on or self._backend.fetch_ended_early
        if failed is not None:  # or the queues would seem empty
            raise failed
        return None

    def _took(self, leases: Sequence[Lease], most: int, *, is_limited: bool) -> None:
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
        """No lane is idle for their jobs: one is to be kept free, if there are any to start."""
        self._passes_over = True
        now, owed = time.monotonic(), self._owed if self._is_owed else []
        if now >= self._ask_at and not set(queues) <= set(owed):
            self._ask_at = now + ASK_SECONDS
            if self._backend.wait(queues, 0.0):
                new = [name for name in queues if name not in owed]
                self._owed, self._owed_until = [*owed, *new], now + OWED_SECONDS

    def _may_be_work(self) -> bool:
        return self._backend.wait(self._queues.watched, 0.0)

    def _nothing(self, changes: int, hints: int) -> None:
        backend, watched = self._backend, self._queues.watched
        # If its server is away it may not answer what comes next.
        still_comes = isinstance(backend, Reconnects) and backend.misses(watched)
        if not still_comes and self.waits_for_limits:
            still_comes = isinstance(backend, LimitsRates) and backend.withholds(watched)
        with self._changed:
            if changes != self._changes:
                return
            self._seen_empty = -1 if still_comes else changes
            if hints == self._hints:
                self._look_at = float("inf")
                self.waiter.arm()

    def keep_up(self) -> None:
        """What can wait until nobody waits for a job."""
        self._queues.refresh()

    def _groups(
        self, queues: Sequence[str], limited: Collection[str]
    ) -> list[tuple[float, int | None, list[str]]]:
        """Queues in their order, neighbours together that are fetched from alike.

        With the length of their leases, and, if they have a rate limit, how many of their
        jobs would start at once.
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
    """Claims, keeps house, and shows that this worker is there."""

    def __init__(
        self,
        shared: Shared,
        changed: threading.Condition,
        queues: QueueOrder,
        places: Places,
        poll_interval: float,
    ) -> None:
        backend = shared.backend
        self.store = Store(shared.asker.outage, shared.stopped, lambda: backend.wait(None, 0.0))
        self.looking = Looking(backend, shared.settings, queues, poll_interval, changed)
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
        self._house_waits = True
        self._may_have_unheard = False

    @property
    def draining(self) -> bool:
        """Whether an operator asked this worker to end."""
        return self._duties.draining

    @property
    def is_over(self) -> bool:
        """Nothing that it does has to be ended first."""
        return True

    def seconds_left(self) -> float:
        """How long there is nothing to do."""
        if self._stopped():
            return float("inf")
        # So that jobs that are asked to stop hear of it, also while the worker is busy.
        most = self._lease / LOOKS_PER_LEASE
        return min(most, self._duties.seconds_left(), self.looking.seconds_left())

    def turn(self) -> bool:
        """Claim, or keep house; False when nothing is left to do now."""
        if self._stopped():
            return False
        if self.store.fails:  # so that its return is noticed soon, also where nothing is wanted
            self._duties.house.hurry()
        if self._may_have_unheard:  # which proves nothing: mostly there is nothing to return
            self.store.call(self._return_unheard, proves=False)
            return True
        # Work first, for somebody waits for it; but the house is never passed over twice.
        if self._house_waits or not self.looking.begin():
            self._house_waits = False
            asks = not self._duties.seconds_left()
            self.store.call(self._keep_house, proves=asks)
            return self.looking.seconds_left() <= 0
        self._house_waits = True
        try:
            self.store.call(self._fetch)
        finally:
            self.looking.fetching = False
            self._wake()
        return True

    def _keep_house(self) -> None:
        if self._duties.step():
            self.looking.hint()
        do = self._duties.do
        do("look for queues", self.looking.keep_up)
        do("ask which jobs are to stop", self._ask)
        if isinstance(self._backend, Reconnects):
            self._backend.return_unheard()  # what could not be given back when it was claimed

    def _ask(self) -> None:
        """Whether what has run for a while is to stop."""
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
        self._may_have_unheard = True  # until it has come back
        fetched = self.looking.look()
        self._may_have_unheard = False
        if fetched:
            self._holdings.add(fetched.leases, fetched.lease_seconds, fetched.asked_at)
            if self._holdings.has_plenty:
                self.looking.suspend()
            self._report(fetched)

    def _return_unheard(self) -> None:
        if isinstance(self._backend, Reconnects):
            self._backend.return_unheard()
        self._may_have_unheard = False

    def end(self) -> None:
        """Take leave. Should the store not answer, what is left is forgotten in time."""
        self.store.call(self._return_unheard, proves=False)
        self.store.call(self._duties.end, proves=False)
