"""What a worker owes to the leases it has: they are renewed, and settled when their jobs end.

Each call is a short one, by primary key. What cannot be settled just now waits by itself, with a
pause of its own, behind what can: a locked row or a value that the store refuses stops nothing
else. Only a store that answers nobody stops everything.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_jobs.backends.base import Settled, is_connected
from django_jobs.backoff import Backoff
from django_jobs.execution.outcome import Cancelled, Crashed, Failed, Interrupted, Succeeded
from django_jobs.execution.return_value import Encoded
from django_jobs.worker.pool.thread_messages import (
    AllDone,
    Done,
    Finished,
    Renewed,
)
from django_jobs.worker.settle import ENDINGS, Verdict, goes_back
from django_jobs.worker.settle_many import settle_many
from django_jobs.worker.store import LATER, REFUSED, UNANSWERED, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django_jobs.backends.base import Lease
    from django_jobs.worker.pool.thread_messages import Shared


# The leases a worker holds, and when each has to be renewed. Used by two threads.


RENEWALS_PER_LEASE = 3
LOOKS_PER_LEASE = 12
AHEAD_BYTES = 8 << 20  # with so much held nothing is fetched ahead; a claim may bring CLAIM_BYTES


class Holdings:
    """Leases by job, with their length and their end on our own clock."""

    def __init__(self, shortest_lease: float) -> None:
        self._held: dict[str, tuple[Lease, float, float]] = {}
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()
        self._every = shortest_lease / LOOKS_PER_LEASE
        self._look_at = 0.0
        self._bytes = 0

    def add(self, leases: Iterable[Lease], seconds: float, asked_at: float) -> None:
        with self._lock:
            for lease in leases:
                if known := self._held.get(lease.id):
                    self._bytes -= len(known[0].message.body)
                self._bytes += len(lease.message.body)
                self._held[lease.id] = (lease, seconds, asked_at + seconds)
                self._since[lease.id] = asked_at

    def drop(self, leases: Iterable[Lease]) -> None:
        """Renew leases no more: they ended."""
        with self._lock:
            for lease in leases:
                known = self._held.get(lease.id)
                if known is not None and known[0].token == lease.token:
                    self._bytes -= len(known[0].message.body)
                    del self._held[lease.id], self._since[lease.id]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_plenty(self) -> bool:
        """Whether what is held makes so many bytes that no more is to be fetched ahead."""
        return self._bytes >= AHEAD_BYTES

    def long_held(self, seconds: float) -> list[Lease]:
        """What has been held for so long, renewed or not."""
        since = time.monotonic() - seconds
        with self._lock:
            return [lease for job, (lease, _, _) in self._held.items() if self._since[job] <= since]

    def due(self) -> dict[float, list[Lease]]:
        """What has to be renewed now, by the length of the lease; looked at now and then."""
        now = time.monotonic()
        if now < self._look_at:
            return {}
        self._look_at = now + self._every
        due: dict[float, list[Lease]] = {}
        with self._lock:
            for lease, seconds, ends in self._held.values():
                if ends - now < seconds * (RENEWALS_PER_LEASE - 1) / RENEWALS_PER_LEASE:
                    due.setdefault(seconds, []).append(lease)
        return due

    def renewed(
        self, leases: Sequence[Lease], answers: Sequence[Settled], seconds: float, asked_at: float
    ) -> None:
        self.drop([x for x, answer in zip(leases, answers, strict=True) if answer is Settled.LOST])
        held = [x for x, answer in zip(leases, answers, strict=True) if answer is Settled.SETTLED]
        with self._lock:
            for lease in held:
                known = self._held.get(lease.id)
                if known is not None and known[0].token == lease.token:
                    self._held[lease.id] = (lease, seconds, asked_at + seconds)


SETTLE_AT_ONCE = 500
SETTLE_BYTES = 1 << 20  # servers refuse statements that are too long
ONE_BY_ONE = 50
BATCH_SHARE = 6  # settling may keep renewals waiting for this part of a lease
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
PATIENCE = 3  # leases for which a settle is tried again


@dataclass(slots=True)
class _Waiting:
    """A settle that could not be done, since when it waits, and when it is tried again."""

    finished: Finished
    since: float
    ask_at: float
    until: float
    backoff: Backoff | None = None


class Keep:
    """Renews and settles. ``finished`` may be added to by any thread that holds ``changed``."""

    def __init__(
        self, shared: Shared, changed: threading.Condition, ended: Callable[[], None]
    ) -> None:
        self.finished: deque[Finished] = deque()
        self.store = Store(shared.asker.outage, shared.stopped)
        self._later: list[_Waiting] = []
        self._backend = shared.backend
        self._asker = shared.asker
        self._holdings = shared.holdings
        self._tally = shared.tally
        self._lease = shared.lease
        self._report = shared.report
        self._changed = changed
        self._ended = ended
        self._was_new = False
        self._at_once = SETTLE_AT_ONCE
        self._answered_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to settle."""
        return not (self.finished or self._later)

    @property
    def is_stuck(self) -> bool:
        """Whether the last settle was not answered: what ends meanwhile only waits."""
        return self.store.fails and bool(self.finished)

    def seconds_left(self) -> float:
        """How long there is nothing to do."""
        if self.finished:
            return 0.0
        moments = [one.ask_at - time.monotonic() for one in self._later]
        return max(min([self._lease / LOOKS_PER_LEASE, *moments]), 0.0)

    def turn(self) -> bool:
        """Do what is most urgent; False when there was nothing."""
        if due := self._holdings.due():
            self.store.call(lambda: self._renew(due))
            return True
        # What just ended comes first, but what waits is never passed over twice.
        waiting = self._to_ask_again() if self._was_new or not self.finished else []
        self._was_new = not waiting
        if waiting:
            self.store.call(lambda: self._settle(waiting))
        elif self.finished:
            self.store.call(self._settle_new)
        elif self.store.fails and not len(self._holdings):
            self.store.call(self._ask_if_back)
        else:
            return False
        return True

    def _ask_if_back(self) -> None:
        """Or an outage that this thread met would last until it has something to keep again."""
        self._backend.wait(None, 0.0)

    def end(self) -> None:
        """Count what was settled last."""
        self._tally.end()

    def _to_ask_again(self) -> list[_Waiting]:
        now = time.monotonic()
        due = [one for one in self._later if one.ask_at <= now][:ONE_BY_ONE]
        if due:
            self._later = [one for one in self._later if one not in due]
        return due

    def _settle_new(self) -> None:
        """Everything that finished since the last round trip, in as few steps as can be."""
        batch = next_batch(self.finished, self._at_once)
        now = time.monotonic()
        until = now + PATIENCE * self._lease
        self._settle([_Waiting(one, now, now, until) for one in batch])

    def _settle(self, waiting: Sequence[_Waiting]) -> None:
        batch = [one.finished for one in waiting]
        again = {place for place, one in enumerate(batch) if one.again}
        items = [(one.run, one.outcome) for one in batch]
        limit = self._lease / BATCH_SHARE
        try:
            verdicts = settle_many(self._asker, items, again, seconds=limit)
            unanswered, settled = self._told_apart(waiting, verdicts)
        except Exception:
            # As nobody foresaw. Were their leases renewed all the same, they would never end.
            self._end([Done(one.run, one.outcome, LATER) for one in batch])
            raise
        self._end(settled)
        if unanswered:
            self._put_back(unanswered)
            raise ConnectionError("the connection broke while jobs were settled")
        self._at_once = min(self._at_once * 2, SETTLE_AT_ONCE)
        self._answered_at = time.monotonic()

    def _told_apart(
        self, waiting: Sequence[_Waiting], verdicts: Sequence[Verdict]
    ) -> tuple[list[_Waiting], list[Done]]:
        unanswered: list[_Waiting] = []
        settled: list[Done] = []
        for wait, verdict in zip(waiting, verdicts, strict=True):
            one = wait.finished
            if verdict is UNANSWERED:
                unanswered.append(wait)
            elif verdict is LATER and self._may_wait(wait):
                continue
            else:
                if verdict.answer is not Settled.SETTLED:
                    verdict = self._judged(one, verdict)  # noqa: PLW2901 - most need no second look
                settled.append(Done(one.run, one.outcome, verdict))
        return unanswered, settled

    def _end(self, settled: list[Done]) -> None:
        if settled:
            self._holdings.drop([done.run.lease for done in settled])
            self._tally.done(settled)
            self._ended()
            self._report(AllDone(settled))

    def _put_back(self, unanswered: Sequence[_Waiting]) -> None:
        """Settle fewer at once next: should one of them break the connection, it is found.

        One that was alone, and not for the first time, waits by itself. It is given up only where
        others were answered meanwhile: not in an outage.
        """
        self._at_once = max(len(unanswered) // 2, 1)
        wait = unanswered[0]
        if len(unanswered) == 1 and wait.finished.again:
            if self._answered_at < wait.since:
                wait.until = time.monotonic() + PATIENCE * self._lease
            if self._may_wait(wait):
                return
            self._end([Done(wait.finished.run, wait.finished.outcome, LATER)])
            return
        with self._changed:
            again = [one.finished._replace(again=True) for one in unanswered]
            self.finished.extendleft(reversed(again))

    def _may_wait(self, waiting: _Waiting) -> bool:
        """Put off what could not be settled; False when it was tried for long enough."""
        now = time.monotonic()
        if now >= waiting.until:
            return False
        finished = waiting.finished._replace(again=True)
        longest = min(LONGEST_PAUSE, self._lease / BATCH_SHARE)
        backoff = waiting.backoff or Backoff(FIRST_PAUSE, longest)
        ask_at = now + backoff.next()
        self._later.append(_Waiting(finished, now, ask_at, waiting.until, backoff))
        return True

    def _judged(self, one: Finished, verdict: Verdict) -> Verdict:
        """An atomic job that nobody heard of again may have been committed: then it is over."""
        terms = one.run.terms
        cut = isinstance(one.outcome, Cancelled | Crashed | Failed | Interrupted)
        lost = verdict.answer is Settled.LOST and cut
        if lost and terms and terms.atomic and self._asker.is_gone(one.run, 0.0):
            return Verdict("acked", Settled.SETTLED)
        return Verdict("error", Settled.UNKNOWN) if verdict.status == REFUSED else verdict

    def _renew(self, due: dict[float, list[Lease]]) -> None:
        for seconds, leases in due.items():
            asked_at = time.monotonic()
            answers = self._backend.renew(leases, seconds)
            self._holdings.renewed(leases, answers, seconds, asked_at)
            found = {(x.id, x.token): answer for x, answer in zip(leases, answers, strict=True)}
            self._report(Renewed(found, asked_at))
            if Settled.UNKNOWN in answers and not is_connected(self._backend):
                raise ConnectionError("the connection broke while leases were renewed")


def next_batch(finished: deque[Finished], most: int = SETTLE_AT_ONCE) -> list[Finished]:
    """Take what to settle next: bounded in number and size."""
    batch: list[Finished] = []
    alone = size = 0
    while finished and len(batch) < most and alone < ONE_BY_ONE:
        head = finished[0]
        size += _size(head)
        if batch and size > SETTLE_BYTES:
            break
        batch.append(finished.popleft())
        alone += not (isinstance(head.outcome, ENDINGS) or goes_back(head.outcome))
    return batch


def _size(one: Finished) -> int:
    size = len(one.run.lease.message.body)
    if isinstance(one.outcome, Succeeded):
        value = one.outcome.value
        size += len(one.outcome.output) + (len(value.json) if isinstance(value, Encoded) else 0)
    return size
