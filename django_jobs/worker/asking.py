"""Settling when the store does not answer: ask again with the same token until it does.

A settle whose connection broke may have counted or not. Asking again is safe, for it
needs the token; what a second "lost" means is told by a look at the job's row. After the
lease nobody can say any more, and whoever takes the job next decides.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from django.db import Error, InterfaceError, OperationalError, connections

from django_jobs.backends.base import Settled
from django_jobs.backends.database.transactions import is_schema_missing
from django_jobs.worker.settle import Verdict
from django_jobs.worker.store import FIRST_PAUSE, close_idle_connections

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.settle import Run, Settler
    from django_jobs.worker.store import Outage

T = TypeVar("T")

LONGEST_PAUSE = 2.0
NO_ANSWER = "nobody could say, before the lease ended, whether the settle counted"


class NoAnswerError(Exception):
    """The store said nothing in time."""


def may_pass(error: BaseException) -> bool:
    """Whether to ask again: it says nothing of the job, only of the store or its tables."""
    passing = isinstance(error, OperationalError | InterfaceError | OSError)
    return passing or (isinstance(error, Error) and is_schema_missing(error))


class Asker:
    """Settles one delivery at a time. ``hurried`` tells that there is no time to ask again."""

    def __init__(self, settler: Settler, outage: Outage) -> None:
        self.settler = settler
        self.outage = outage
        self.hurried: Callable[[], bool] = lambda: False

    def settle(self, run: Run, outcome: Outcome, seconds: float, *, again: bool = False) -> Verdict:
        """The verdict; its answer is unknown only when ``seconds`` of asking did not help.

        ``again``: it was asked for before, and the answer did not come.
        """
        asked = int(again)

        def ask() -> Verdict:
            nonlocal asked
            asked += 1
            verdict = self.settler.settle(run, outcome)
            if verdict.answer is Settled.UNKNOWN:
                raise ConnectionError("the connection broke while a job was settled")
            if verdict.answer is Settled.LOST and asked > 1 and self._counted(run, verdict):
                return verdict._replace(answer=Settled.SETTLED)
            return verdict

        try:
            return self._patiently(ask, seconds)
        except NoAnswerError:
            return Verdict("error", Settled.UNKNOWN, reason=NO_ANSWER)

    def is_gone(self, run: Run, seconds: float) -> bool:
        """Whether the row of a job is gone, and so an earlier ack counted."""
        find = self.settler.backend.find
        try:
            return self._patiently(lambda: find(run.lease.id) is None, seconds)
        except NoAnswerError:
            return False

    def _counted(self, run: Run, verdict: Verdict) -> bool:
        """Whether it was the first asking, unanswered, that took the lease away."""
        backend = self.settler.backend
        if not backend.capabilities.peek:
            return True
        row = backend.find(run.lease.id)
        if row is None:
            return True
        if verdict.ends:
            return False
        header = row.message.header
        charged = header.attempts > run.attempts or header.crashes > run.crashes
        return charged or row.state != "running"

    def _patiently(self, work: Callable[[], T], seconds: float) -> T:
        """The answer, asked for until there is one; raises NoAnswerError when time is up."""
        deadline = time.monotonic() + seconds
        pause = FIRST_PAUSE
        while True:
            try:
                answer = work()
            except (Error, OSError) as error:
                if self._in_transaction() or not may_pass(error):
                    raise
                self.outage.begins(error)
            else:
                self.outage.ends()
                return answer
            close_idle_connections()
            self._nap(min(pause * random.uniform(0.5, 1.0), deadline - time.monotonic()))  # noqa: S311 - jitter
            if time.monotonic() >= deadline or self.hurried():
                raise NoAnswerError
            pause = min(pause * 2, LONGEST_PAUSE)

    def _in_transaction(self) -> bool:
        """Whether the store's connection is in somebody's transaction, which is broken by now."""
        database = getattr(self.settler.backend, "database", None)
        return database is not None and connections[database].in_atomic_block

    def _nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.hurried() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, FIRST_PAUSE))
