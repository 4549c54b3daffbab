"""What a worker gets from its store: leases, and the housekeeping it does for everybody.

These calls may take a while, or hang. None of them renews or settles what this worker has.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_jobs.worker.duties import Duties, Housekeeping, Ledger, Presence
from django_jobs.worker.pool.facts import StopAsked
from django_jobs.worker.pool.holdings import LOOKS_PER_LEASE
from django_jobs.worker.pool.looking import Looking
from django_jobs.worker.store import Store

if TYPE_CHECKING:
    import threading

    from django_jobs.worker.pool.facts import Shared
    from django_jobs.worker.pool.marks import Places
    from django_jobs.worker.queues import QueueOrder

ASK_SECONDS = 2.0


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
        self._tally = shared.tally
        self._report = shared.report
        self._stopped = shared.stopped
        self._wake = shared.wake
        self._house = Housekeeping(backend, shared.lease, shared.asker.outage)
        self._duties = Duties(backend)
        self._ledger = Ledger(backend)
        self._presence = Presence(
            backend,
            str(queues),
            places.processes,
            places.concurrency,
            shared.holdings.__len__,
        )
        self._kill_grace = shared.settings.kill_grace
        self._ask_at = 0.0
        self._house_waits = True
        self._may_have_unheard = False

    @property
    def draining(self) -> bool:
        """Whether an operator asked this worker to end."""
        return self._presence.draining

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
        return min(most, self._house.seconds_left(), self.looking.seconds_left())

    def turn(self) -> bool:
        """Claim, or keep house; False when nothing is left to do now."""
        if self._stopped():
            return False
        if self.store.fails:  # so that its return is noticed soon, also where nothing is wanted
            self._house.hurry()
        if self._may_have_unheard:  # which proves nothing: mostly there is nothing to return
            self.store.call(self._return_unheard, proves=False)
            return True
        # Work first, for somebody waits for it; but the house is never passed over twice.
        if self._house_waits or not self.looking.begin():
            self._house_waits = False
            asks = not self._house.seconds_left()
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
        do = self._duties.do
        do("show that it is there", self._presence.tell)
        do("tell its figures", self._ledger.tell)
        if self._house.step():
            self.looking.hint()
        do("look for queues", self.looking.keep_up)
        do("tell its counts", self._tally.tell_now_and_then)
        do("ask which jobs are to stop", self._ask)
        self._backend.return_unheard()  # what could not be given back when it was claimed

    def _ask(self) -> None:
        """Whether what has run for a while is to stop."""
        if (now := time.monotonic()) < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        if (held := self._holdings.long_held(ASK_SECONDS)) and (
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
        self._backend.return_unheard()
        self._may_have_unheard = False

    def end(self) -> None:
        """Take leave. Should the store not answer, what is left is forgotten in time."""
        self.store.call(self._return_unheard, proves=False)
        self.store.call(self._tally.end, proves=False)
        self.store.call(self._presence.end, proves=False)
