"""Settling when the store does not answer, or refuses what it is given.

A settle whose connection broke may have counted or not. Asking again is safe, for it needs the
token; what a second "lost" means is told by a look at the job's row. After the lease nobody can
say any more, and whoever takes the job next decides. What the store refuses is settled without
the texts that it refused: work that was done is never repeated for the sake of its record.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from django.db import Error, connections

from django_jobs.backends.base import Charge, Settled
from django_jobs.execution.errors import error_text
from django_jobs.execution.outcome import (
    Cancelled,
    Crashed,
    ErrorText,
    Failed,
    Interrupted,
    Rejected,
    Skipped,
    Snoozed,
    Succeeded,
)
from django_jobs.execution.return_value import Encoded, encoded_value
from django_jobs.telemetry import events
from django_jobs.texts import one_line
from django_jobs.worker.happening import trace_id_of
from django_jobs.worker.settle import Verdict
from django_jobs.worker.store import FIRST_PAUSE, Trouble, close_idle_connections, trouble_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.execution.outcome import Outcome
    from django_jobs.worker.settle import Run, Settler
    from django_jobs.worker.store import Outage

T = TypeVar("T")

LONGEST_PAUSE = 2.0
REFUSED_PAUSE = 60.0
"""Seconds until a job is run again of which the store refuses every settle."""
NO_ANSWER = "nobody could say, before the lease ended, whether the settle counted"
UNANSWERED = Verdict("error", Settled.UNKNOWN, reason=NO_ANSWER)
"""The store serves nobody just now."""
LATER = Verdict("error", Settled.UNKNOWN, reason=f"{NO_ANSWER}: its row was locked, or too slow")
"""The store serves others, but this settle could not be done just now."""
REFUSED = "refused"


class NoAnswerError(Exception):
    """The settle could not be done in time."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class SettleRefusedError(Exception):
    """The store answers, and will not do what it was asked."""


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
        steps = [(outcome, True)]
        refusal: BaseException | None = None
        try:
            while steps:
                smaller, recorded = steps.pop(0)
                try:
                    return self._asked(run, smaller, seconds, again=again, recorded=recorded)
                except SettleRefusedError as refused:
                    if refusal is None:
                        refusal = refused.__cause__ or refused
                        self._tell_refused(run, refusal)
                        steps = _smaller(outcome, refusal)
            return self._given_up(run, refusal, seconds)
        except NoAnswerError as over:
            return over.verdict

    def _asked(
        self, run: Run, outcome: Outcome, seconds: float, *, again: bool, recorded: bool
    ) -> Verdict:
        asked = int(again)

        def ask() -> Verdict:
            nonlocal asked
            asked += 1
            verdict = self.settler.settle(run, outcome, recorded=recorded)
            if verdict.answer is Settled.UNKNOWN:
                raise NoAnswerError(self.unheard())
            if verdict.answer is Settled.LOST and asked > 1 and self._counted(run, verdict):
                return verdict._replace(answer=Settled.SETTLED)
            return verdict

        return self._patiently(ask, seconds, again=again)

    def unheard(self) -> Verdict:
        """What it means that an answer is unknown: the connection broke, or the row is locked."""
        return LATER if self.settler.backend.is_connected() else UNANSWERED

    def _given_up(self, run: Run, refusal: BaseException | None, seconds: float) -> Verdict:
        """Give back a job of which the store refuses every settle: later, and charged nothing."""
        backend = self.settler.backend
        delay = REFUSED_PAUSE if backend.capabilities.delay else None
        reason = f"the store refuses the settle: {refusal}"

        def work() -> Verdict:
            answer = backend.nack(run.lease, delay, charge=Charge.NOTHING)
            return Verdict("requeued", answer, delay or 0.0, reason)

        try:
            return self._patiently(work, seconds, again=False)
        except SettleRefusedError:
            return Verdict(REFUSED, Settled.UNKNOWN, reason=reason)

    def _tell_refused(self, run: Run, error: BaseException) -> None:
        index = run.lease.message.index
        handler = run.envelope.terms.job if run.envelope else str(index.get("handler", ""))
        events.emit(
            events.SettleRefused(
                job_id=run.lease.id,
                queue=run.lease.queue,
                handler=one_line(handler),
                attempt=run.attempts + 1,
                trace_id=trace_id_of(run.lease, run.envelope),
                error=error,
            )
        )

    def is_gone(self, run: Run, seconds: float) -> bool:
        """Whether the row of a job is gone, and so an earlier ack counted."""
        find = self.settler.backend.find
        try:
            return self._patiently(lambda: find(run.lease.id) is None, seconds, again=False)
        except (NoAnswerError, SettleRefusedError):
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

    def _patiently(self, work: Callable[[], T], seconds: float, *, again: bool) -> T:
        """The answer, asked for until there is one; raises NoAnswerError when time is up."""
        deadline = time.monotonic() + seconds
        pause = FIRST_PAUSE
        while True:
            try:
                answer = work()
            except NoAnswerError as unheard:
                verdict = unheard.verdict
                if verdict is UNANSWERED:
                    self.outage.begins(ConnectionError("the connection broke during a settle"))
            except (Error, OSError) as error:
                verdict = self._without_answer(error, again=again)
            else:
                self.outage.ends()
                return answer
            close_idle_connections()
            self._nap(min(pause * random.uniform(0.5, 1.0), deadline - time.monotonic()))  # noqa: S311 - jitter
            if time.monotonic() >= deadline or self.hurried():
                raise NoAnswerError(verdict)
            pause, again = min(pause * 2, LONGEST_PAUSE), True

    def _without_answer(self, error: Exception, *, again: bool) -> Verdict:
        """What an error means for a settle that may be asked again; raises where it may not."""
        trouble = trouble_of(error, twice=again)
        if trouble is Trouble.REFUSED:
            raise SettleRefusedError from error
        if self._in_transaction():
            raise error
        if trouble is Trouble.LATER:
            return LATER
        self.outage.begins(error)
        return UNANSWERED

    def _in_transaction(self) -> bool:
        """Whether the store's connection is in somebody's transaction, which is broken by now."""
        database = getattr(self.settler.backend, "database", None)
        return database is not None and connections[database].in_atomic_block

    def _nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.hurried() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, FIRST_PAUSE))


def _smaller(outcome: Outcome, refusal: BaseException) -> list[tuple[Outcome, bool]]:
    """What is left of an outcome when the store refuses it, and whether a record of it is kept.

    First its texts in ASCII, which every encoding has; then a note instead of them; then
    nothing but what becomes of the job.
    """
    error = error_text(refusal)
    why = _ascii(f"the store refused it: {error.type}: {error.message}")
    note = f"not kept, for {why}"
    escaped, bare = _with_texts(outcome, _ascii), _with_texts(outcome, lambda _: note)
    if isinstance(outcome, Succeeded):
        bare = Succeeded(Encoded("null", why), note if outcome.output else "")
    elif isinstance(bare, Failed) and isinstance(escaped, Failed):
        bare = replace(bare, error=ErrorText(escaped.error.type, note), output="")
    steps: list[tuple[Outcome, bool]] = [(bare, True), (bare, False)]
    return steps if escaped == _with_texts(outcome, str) else [(escaped, True), *steps]


def _with_texts(outcome: Outcome, change: Callable[[str], str]) -> Outcome:
    """The outcome with each text that people read changed."""
    match outcome:
        case Succeeded(value, output):
            kept = encoded_value(value)
            note = change(kept.note) if kept.note else ""
            return Succeeded(Encoded(kept.json, note), change(output))
        case Failed(error):
            texts = ErrorText(change(error.type), change(error.message), change(error.traceback))
            return replace(outcome, error=texts, output=change(outcome.output))
        case Rejected(_, detail) | Crashed(detail):
            return replace(outcome, detail=change(detail))
        case Cancelled(reason, output):
            return Cancelled(change(reason), change(output))
        case Snoozed() | Skipped() | Interrupted():
            return replace(outcome, reason=change(outcome.reason))


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")
