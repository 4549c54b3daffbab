"""The thread that talks to the store, so that the supervisor never has to.

It does one thing after the other, the most urgent first: renew what would end, settle
whatever has finished since the last round trip, fetch what the children can take, keep
house. If the store hangs, this thread hangs, and nothing else; the supervisor then cuts
its connection, which wakes it with an error.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_jobs.backends.base import Settled
from django_jobs.execution.outcome import Cancelled, Crashed, Failed, Interrupted
from django_jobs.worker.batch import REFUSED, UNANSWERED, settle_many
from django_jobs.worker.housekeeping import Housekeeping
from django_jobs.worker.ledger import Ledger
from django_jobs.worker.loop import shortest_lease
from django_jobs.worker.pool.batching import next_batch
from django_jobs.worker.pool.cutting import cut_connection
from django_jobs.worker.pool.facts import AllDone, Done, Finished, Renewed, StopAsked
from django_jobs.worker.pool.holdings import LOOKS_PER_LEASE, Holdings
from django_jobs.worker.pool.looking import Looking
from django_jobs.worker.presence import Presence
from django_jobs.worker.relaying import RelayThread
from django_jobs.worker.settle import Verdict
from django_jobs.worker.store import Store
from django_jobs.worker.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.backends.base import Backend, Lease
    from django_jobs.conf import JobsSettings
    from django_jobs.outbox.relay import Relay
    from django_jobs.worker.asking import Asker
    from django_jobs.worker.pool.facts import Fact, WakePipe
    from django_jobs.worker.pool.marks import Places
    from django_jobs.worker.queues import QueueOrder

ASK_SECONDS = 2.0
HANG_SHARE = 3  # a call may last this part of a lease


class StoreThread:
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
        self.news: deque[Fact] = deque()
        self.shortest_lease = shortest_lease(settings)
        self.holdings = Holdings(self.shortest_lease)
        self.failed: BaseException | None = None
        self._backend = backend
        self._asker = asker
        self._wake = wake
        self._changed = threading.Condition()
        self._finished: deque[Finished] = deque()
        self._looking = Looking(backend, settings, queues, poll_interval, self._changed)
        self._ends = self._gives_up = False
        self._store = Store(asker.outage, lambda: self._ends)
        self._house = Housekeeping(backend, self.shortest_lease, asker.outage)
        ended = self._looking.something_ended  # what was moved may be in a queue that is new
        self._relay = RelayThread(relay, poll_interval, self.shortest_lease, ended)
        self._ledger = Ledger(backend)
        self._presence = Presence(
            backend, str(queues), places.processes, places.concurrency, self.holdings.__len__
        )
        self._tally = Tally(backend)
        self._kill_grace = settings.kill_grace
        self._ask_at = 0.0
        self._busy_since = 0.0
        self._house_waits = True
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="django_jobs-store", daemon=True)

    # ------------------------------------------------------------- for the supervisor's thread

    def start(self) -> None:
        self._thread.start()
        self._looking.waiter.start()
        self._relay.start()

    @property
    def empty(self) -> bool:
        """Whether nothing was due when it was last looked, and nothing has happened since."""
        return self._looking.empty

    def nothing_comes(self, *, idle: bool) -> bool:
        """Whether the outbox was found empty since this was first asked of an ``idle`` worker."""
        if not idle:
            self._relay.ask_again()
        return idle and self._relay.has_nothing()

    @property
    def draining(self) -> bool:
        """Whether an operator asked this worker to end."""
        return self._presence.draining

    @property
    def fetching(self) -> bool:
        return self._looking.fetching

    def wish(self, received: int, wanted: int) -> None:
        """Fetch until so many leases more have been fetched than have been received."""
        self._looking.wish(received, wanted)

    def settle(self, finished: list[Finished]) -> None:
        """Settle deliveries; news of each follow."""
        with self._changed:
            self._finished.extend(finished)
            self._changed.notify()

    def settled_elsewhere(self, lease: Lease, status: str, seconds: float) -> None:
        """A child settled a delivery itself."""
        self.holdings.drop([lease])
        self._tally.ended(lease.queue, status, seconds)
        self._looking.something_ended()

    def cut_if_hung(self) -> None:
        """Break a call that takes so long that leases would be lost over it."""
        since, now = self._busy_since, time.monotonic()
        if since and now - since > self.shortest_lease / HANG_SHARE:
            self._busy_since = now
            cut_connection(self._connection)
        self._relay.cut_if_hung(cut_connection)

    def end(self, *, patience: float) -> None:
        """End when everything is settled; after so many seconds end all the same."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._looking.waiter.end()
        self._relay.end()
        self._thread.join(timeout=patience)
        self._looking.waiter.join()
        self._gives_up = True

    # --------------------------------------------------------------------- the thread's own part

    def _run(self) -> None:
        database = getattr(self._backend, "database", None)
        self._connection = connections[database] if database else None
        try:
            while not (self._ends and (self._gives_up or not self._finished)):
                if not self._turn():
                    self._wait()
            self._call(self._tally.end, proves=False)
            self._call(self._presence.end, proves=False)  # it puts up with no answer
        except BaseException as error:  # noqa: BLE001 - the supervisor ends the worker for it
            self.failed = error
        finally:
            connections.close_all()
            self._wake.wake()

    def _turn(self) -> bool:
        """Do what is most urgent; False when there was nothing."""
        if due := self.holdings.due():
            self._call(lambda: self._renew(due))
            return True
        if self._finished:
            self._call(self._settle)
            return True
        if self._ends:
            return False
        # Work first, for somebody waits for it; but the house is never passed over twice.
        if self._house_waits or not self._looking.begin():
            self._house_waits = False
            asks = not self._house.seconds_left()
            self._call(self._keep_house, proves=asks)
            return self._looking.seconds_left() <= 0
        self._house_waits = True
        try:
            self._call(self._fetch)
        finally:
            self._looking.fetching = False
            self._wake.wake()
        return True

    def _call(self, work: Callable[[], None], *, proves: bool = True) -> None:
        def timed() -> None:
            self._busy_since = time.monotonic()
            try:
                work()
            finally:
                self._busy_since = 0.0

        self._store.call(timed, proves=proves)

    def _keep_house(self) -> None:
        self._presence.tell()
        self._ledger.tell()
        if self._house.step():
            self._looking.hint()
        self._looking.keep_up()
        self._tally.tell_now_and_then()
        self._ask()

    def _ask(self) -> None:
        """Whether what has run for a while is to stop."""
        if (now := time.monotonic()) < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        if (held := self.holdings.long_held(ASK_SECONDS)) and (
            asked := self._backend.asked_to_stop(held)
        ):
            self.news.append(StopAsked(frozenset(asked), now + self._kill_grace))
            self._wake.wake()

    def _fetch(self) -> None:
        if fetched := self._looking.look():
            self.holdings.add(fetched.leases, fetched.lease_seconds, fetched.asked_at)
            self.news.append(fetched)

    def _settle(self) -> None:
        """Everything that finished since the last round trip, in as few steps as can be."""
        batch = next_batch(self._finished)
        again = {place for place, one in enumerate(batch) if one.again}
        verdicts = settle_many(self._asker, [(one.run, one.outcome) for one in batch], again)
        unanswered: list[Finished] = []
        settled: list[Done] = []
        for one, verdict in zip(batch, verdicts, strict=True):
            if verdict is UNANSWERED:
                unanswered.append(Finished(one.run, one.outcome, again=True))
            else:
                if verdict.answer is not Settled.SETTLED:
                    verdict = self._judged(one, verdict)  # noqa: PLW2901 - most need no second look
                settled.append(Done(one.run, one.outcome, verdict))
        self.holdings.drop([done.run.lease for done in settled])
        self._tally.done(settled)
        self.news.append(AllDone(settled))
        with self._changed:
            self._finished.extend(unanswered)  # behind the others, lest one blocks them
        self._looking.something_ended()
        self._wake.wake()
        if unanswered:
            raise ConnectionError("the connection broke while jobs were settled")

    def _judged(self, one: Finished, verdict: Verdict) -> Verdict:
        """An atomic job that nobody heard of again may have been committed: then it is over."""
        envelope = one.run.envelope
        cut = isinstance(one.outcome, Cancelled | Crashed | Failed | Interrupted)
        lost = verdict.answer is Settled.LOST and cut
        if lost and envelope and envelope.terms.atomic and self._asker.is_gone(one.run, 0.0):
            return Verdict("acked", Settled.SETTLED)
        return Verdict("error", Settled.UNKNOWN) if verdict.status == REFUSED else verdict

    def _renew(self, due: dict[float, list[Lease]]) -> None:
        for seconds, leases in due.items():
            asked_at = time.monotonic()
            answers = self._backend.renew(leases, seconds)
            self.holdings.renewed(leases, answers, seconds, asked_at)
            told = {(x.id, x.token): answer for x, answer in zip(leases, answers, strict=True)}
            self.news.append(Renewed(told, asked_at))
            self._wake.wake()
            if Settled.UNKNOWN in answers and getattr(self._connection, "errors_occurred", False):
                raise ConnectionError("the connection broke while leases were renewed")

    def _wait(self) -> None:
        with self._changed:
            if self._finished or self._ends:
                return
            pause = min(
                self.shortest_lease / LOOKS_PER_LEASE,
                self._house.seconds_left(),
                self._looking.seconds_left(),
            )
            if pause > 0:
                self._changed.wait(pause)
