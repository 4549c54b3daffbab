"""The keep thread: renews the leases that this worker has, and settles jobs when they end.

Each call is short, by primary key. A settle that fails is retried by itself, after a pause of its
own, behind those that work: a locked row or a value that the store refuses delays no other job.
Only a store that does not answer at all stops everything.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_jobs.backends.base import Settled, is_connected, wait_for_work
from django_jobs.execution.return_value import Encoded
from django_jobs.outcome import Cancelled, Crashed, Failed, Interrupted, Succeeded
from django_jobs.retry import Backoff
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

RENEWALS_PER_LEASE = 3
LOOKS_PER_LEASE = 12
AHEAD_BYTES = 8 << 20  # above this, nothing is fetched ahead; a claim may bring CLAIM_BYTES


class Holdings:
    """The leases of a worker by job, and when each has to be renewed. Used by two threads."""

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
                if entry := self._held.get(lease.id):
                    self._bytes -= len(entry[0].message.body)
                self._bytes += len(lease.message.body)
                self._held[lease.id] = (lease, seconds, asked_at + seconds)
                self._since[lease.id] = asked_at

    def drop(self, leases: Iterable[Lease]) -> None:
        """Stop renewing leases whose jobs have ended."""
        with self._lock:
            for lease in leases:
                entry = self._held.get(lease.id)
                if entry is not None and entry[0].token == lease.token:
                    self._bytes -= len(entry[0].message.body)
                    del self._held[lease.id], self._since[lease.id]

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_plenty(self) -> bool:
        """Whether the leases held have so many bytes that no more are fetched ahead."""
        return self._bytes >= AHEAD_BYTES

    def long_held(self, seconds: float) -> list[Lease]:
        """The leases that have been held for so long, renewed or not."""
        since = time.monotonic() - seconds
        with self._lock:
            return [lease for job, (lease, _, _) in self._held.items() if self._since[job] <= since]

    def due(self) -> dict[float, list[Lease]]:
        """The leases to renew now, by their length; empty between two looks."""
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
                entry = self._held.get(lease.id)
                if entry is not None and entry[0].token == lease.token:
                    self._held[lease.id] = (lease, seconds, asked_at + seconds)


SETTLE_AT_ONCE = 500
SETTLE_BYTES = 1 << 20  # servers refuse statements that are too long
ONE_BY_ONE = 50
BATCH_SHARE = 6  # settling may delay renewals by this part of a lease
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
PATIENCE = 3  # a settle is retried for this many leases


@dataclass(slots=True)
class _Waiting:
    """A settle: since when it waits, when it is retried, and until when."""

    finished: Finished
    since: float
    retry_at: float
    until: float
    backoff: Backoff | None = None


class Keep:
    """Renews and settles. Any thread may add to ``finished`` while it holds ``changed``."""

    def __init__(
        self, shared: Shared, changed: threading.Condition, ended: Callable[[], None]
    ) -> None:
        self.finished: deque[Finished] = deque()
        self.store = Store(shared.asker.outage, shared.stopped)
        self._retries: list[_Waiting] = []
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
        return not (self.finished or self._retries)

    @property
    def is_stuck(self) -> bool:
        """Whether the last settle was not answered, so that ended jobs pile up."""
        return self.store.fails and bool(self.finished)

    def seconds_left(self) -> float:
        """How long until there is something to do."""
        if self.finished:
            return 0.0
        moments = [retry.retry_at - time.monotonic() for retry in self._retries]
        return max(min([self._lease / LOOKS_PER_LEASE, *moments]), 0.0)

    def turn(self) -> bool:
        """Do the most urgent thing; False when there is nothing to do."""
        if due := self._holdings.due():
            self.store.call(lambda: self._renew(due))
            return True
        # Jobs that just ended come first, but retries are never skipped twice.
        waiting = self._due_retries() if self._was_new or not self.finished else []
        self._was_new = not waiting
        if waiting:
            self.store.call(lambda: self._settle(waiting))
        elif self.finished:
            self.store.call(self._settle_new)
        elif self.store.fails and not len(self._holdings):
            self.store.call(self._probe)
        else:
            return False
        return True

    def _probe(self) -> None:
        """Ask whether the store is back; without leases no other call would notice."""
        wait_for_work(self._backend, None, 0.0)

    def end(self) -> None:
        """Write the last counts."""
        self._tally.end()

    def _due_retries(self) -> list[_Waiting]:
        now = time.monotonic()
        due = [retry for retry in self._retries if retry.retry_at <= now][:ONE_BY_ONE]
        if due:
            self._retries = [retry for retry in self._retries if retry not in due]
        return due

    def _settle_new(self) -> None:
        """Settle everything that finished since the last round trip, in few steps."""
        batch = next_batch(self.finished, self._at_once)
        now = time.monotonic()
        until = now + PATIENCE * self._lease
        self._settle([_Waiting(finished, now, now, until) for finished in batch])

    def _settle(self, waiting: Sequence[_Waiting]) -> None:
        batch = [wait.finished for wait in waiting]
        again = {place for place, finished in enumerate(batch) if finished.again}
        items = [(finished.run, finished.outcome) for finished in batch]
        limit = self._lease / BATCH_SHARE
        try:
            verdicts = settle_many(self._asker, items, again, seconds=limit)
            unanswered, settled = self._split(waiting, verdicts)
        except Exception:
            # Unforeseen. If their leases were still renewed, these jobs would never end.
            self._end([Done(finished.run, finished.outcome, LATER) for finished in batch])
            raise
        self._end(settled)
        if unanswered:
            self._put_back(unanswered)
            raise ConnectionError("the connection broke while jobs were settled")
        self._at_once = min(self._at_once * 2, SETTLE_AT_ONCE)
        self._answered_at = time.monotonic()

    def _split(
        self, waiting: Sequence[_Waiting], verdicts: Sequence[Verdict]
    ) -> tuple[list[_Waiting], list[Done]]:
        unanswered: list[_Waiting] = []
        settled: list[Done] = []
        for wait, verdict in zip(waiting, verdicts, strict=True):
            finished = wait.finished
            if verdict is UNANSWERED:
                unanswered.append(wait)
            elif verdict is LATER and self._retry_later(wait):
                continue
            else:
                if verdict.answer is not Settled.SETTLED:
                    verdict = self._final_verdict(finished, verdict)  # noqa: PLW2901 - most need no second look
                settled.append(Done(finished.run, finished.outcome, verdict))
        return unanswered, settled

    def _end(self, settled: list[Done]) -> None:
        if settled:
            self._holdings.drop([done.run.lease for done in settled])
            self._tally.done(settled)
            self._ended()
            self._report(AllDone(settled))

    def _put_back(self, unanswered: Sequence[_Waiting]) -> None:
        """Settle half as many next time, to isolate a job that breaks the connection.

        A job that was alone, and not for the first time, is retried by itself. It is given up
        only if others were answered meanwhile, which rules out an outage.
        """
        self._at_once = max(len(unanswered) // 2, 1)
        first = unanswered[0]
        if len(unanswered) == 1 and first.finished.again:
            if self._answered_at < first.since:
                first.until = time.monotonic() + PATIENCE * self._lease
            if self._retry_later(first):
                return
            self._end([Done(first.finished.run, first.finished.outcome, LATER)])
            return
        with self._changed:
            again = [wait.finished._replace(again=True) for wait in unanswered]
            self.finished.extendleft(reversed(again))

    def _retry_later(self, waiting: _Waiting) -> bool:
        """Put a failed settle off; False when it was tried for long enough."""
        now = time.monotonic()
        if now >= waiting.until:
            return False
        finished = waiting.finished._replace(again=True)
        longest = min(LONGEST_PAUSE, self._lease / BATCH_SHARE)
        backoff = waiting.backoff or Backoff(FIRST_PAUSE, longest)
        retry_at = now + backoff.next()
        self._retries.append(_Waiting(finished, now, retry_at, waiting.until, backoff))
        return True

    def _final_verdict(self, finished: Finished, verdict: Verdict) -> Verdict:
        """A lost atomic job may have been committed by its handler; then it has succeeded."""
        terms = finished.run.terms
        cut = isinstance(finished.outcome, Cancelled | Crashed | Failed | Interrupted)
        lost = verdict.answer is Settled.LOST and cut
        if lost and terms and terms.atomic and self._asker.is_gone(finished.run, 0.0):
            return Verdict("acked", Settled.SETTLED)
        return Verdict("error", Settled.UNKNOWN) if verdict.status == REFUSED else verdict

    def _renew(self, due: dict[float, list[Lease]]) -> None:
        for seconds, leases in due.items():
            asked_at = time.monotonic()
            answers = self._backend.renew(leases, seconds)
            self._holdings.renewed(leases, answers, seconds, asked_at)
            by_lease = {(x.id, x.token): answer for x, answer in zip(leases, answers, strict=True)}
            self._report(Renewed(by_lease, asked_at))
            if Settled.UNKNOWN in answers and not is_connected(self._backend):
                raise ConnectionError("the connection broke while leases were renewed")


def next_batch(finished: deque[Finished], most: int = SETTLE_AT_ONCE) -> list[Finished]:
    """Take the next batch to settle, bounded in number and size."""
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


def _size(finished: Finished) -> int:
    size = len(finished.run.lease.message.body)
    if isinstance(finished.outcome, Succeeded):
        value = finished.outcome.value
        size += len(finished.outcome.output) + (
            len(value.json) if isinstance(value, Encoded) else 0
        )
    return size
