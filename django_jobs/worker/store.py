"""A worker's calls to its store: outages, which are reported once, and settling with retries."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from django.db import Error, connections

from django_jobs.backends.base import Charge, Inspects, Settled, can_peek, is_connected, lacking
from django_jobs.backends.breakers import CLOSED
from django_jobs.db.transactions import (
    gave_up,
    is_conflict,
    is_connection_lost,
    is_refusal,
    is_row_locked,
    is_schema_missing,
    is_unavailable,
)
from django_jobs.exceptions import StoreUnavailable, TablesMissing
from django_jobs.execution.errors import error_text
from django_jobs.execution.return_value import Encoded, encoded_value
from django_jobs.outcome import (
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
from django_jobs.retry import Backoff, spread
from django_jobs.telemetry import events
from django_jobs.texts import one_line
from django_jobs.worker.settle import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_jobs.outcome import Outcome
    from django_jobs.worker.settle import Run, Settler


T = TypeVar("T")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 3.0
CALM_SECONDS = 6.0
"""While a store answers with errors some calls still succeed: the outage is over when none has
failed for so long."""


class ErrorKind(Enum):
    """The kinds of errors of a store: whether, and when, the call can be made again."""

    STORE = "the store is unavailable"
    LATER = "this could not be done just now"
    REFUSED = "this will not be done"


def kind_of_error(error: Exception, *, twice: bool = False) -> ErrorKind:
    """The kind of an error of a store; ``twice``: the call has failed before."""
    if isinstance(error, OSError):
        return ErrorKind.STORE
    if not isinstance(error, Error) or is_refusal(error):
        return ErrorKind.REFUSED
    if is_unavailable(error):
        return ErrorKind.STORE
    if twice and not (gave_up(error) or is_conflict(error)):
        return ErrorKind.REFUSED
    return ErrorKind.LATER


def spares_others(error: Exception) -> bool:
    """Whether a claim that failed with this error may succeed in another queue."""
    if isinstance(error, StoreUnavailable):
        return error.spares_others
    return isinstance(error, Error) and is_row_locked(error)


class Outage:
    """Whether a store can be used. Reported once when it no longer can, and once when it can again.

    Threads count separately: the outage lasts until every thread that met it has had an answer.

    This is also the breaker between a worker and its store. A worker makes one call at a time, so
    each try is a single probe, and the pauses between tries are the cooldown: short ones, as a
    worker should go on soon after its database is back.
    """

    def __init__(self, backend: str, threshold: int = 5, *, database: str | None = None) -> None:
        self._backend = backend
        self._database = database
        self._threshold = threshold
        self._circuit = CLOSED
        self._began_at: float | None = None
        self._away_since: float | None = None
        self._met_by: set[int] = set()
        self._answers = False
        self._calm_at = 0.0
        self._lock = threading.Lock()
        self._over = 0
        self._seen_over_by: dict[int, int] = {}
        self.on_end: list[Callable[[float], None]] = []
        """Called when the store can be used again, with the seconds of the outage."""

    @property
    def seconds(self) -> float:
        """How long the store has been unavailable; 0 if it only refused single calls."""
        return 0.0 if self._away_since is None else time.monotonic() - self._away_since

    def asks(self) -> bool:
        """Note that this thread makes a call; return whether an outage ended since its last one.

        If so, its connection is from before the outage, and may be broken.
        """
        thread, over = threading.get_ident(), self._over
        before, self._seen_over_by[thread] = self._seen_over_by.get(thread, over), over
        return before != over

    def begins(self, error: BaseException) -> None:
        """The store did not answer, or answered with an error."""
        with self._lock:
            # A call that hung through an outage that is over now does not begin a new one.
            seen_over = self._seen_over_by.get(threading.get_ident(), self._over)
            if seen_over == self._over or is_answer(error):
                self._begins(error)

    def _begins(self, error: BaseException) -> None:
        self._met_by.add(threading.get_ident())
        answers, now = is_answer(error), time.monotonic()
        # A refusal or a lock timeout does not mean that the store is away.
        served = answers and (not isinstance(error, Error) or gave_up(error) or is_refusal(error))
        if self._away_since is None and not served:
            self._away_since = now
        # Report again if the store comes back with errors, such as missing tables.
        if self._began_at is None or (answers and not self._answers):
            self._began_at = self._began_at or now
            events.emit(
                events.StoreLost(
                    backend=self._backend,
                    error=error,
                    problem=self._problem(error, answers=answers),
                )
            )
        self._answers = self._answers or answers
        self._calm_at = now + CALM_SECONDS if answers else 0.0
        before, self._circuit = self._circuit, self._circuit.failed("", 0, self._threshold)
        if self._circuit.is_open and not before.is_open:
            failures = self._circuit.failures
            events.emit(
                events.BreakerOpened(**self._about(), failures=failures, seconds=LONGEST_PAUSE)
            )

    def ends(self) -> None:
        """A call succeeded."""
        if self._began_at is not None:
            self._answered()
        self._seen_over_by[threading.get_ident()] = self._over

    def _answered(self) -> None:
        with self._lock:
            self._met_by.discard(threading.get_ident())  # it may make no further calls
            calm = time.monotonic() >= self._calm_at
            if calm and not self._met_by and self._began_at is not None:
                self._ends(self._began_at)

    def _ends(self, began_at: float) -> None:
        away, self._away_since = self.seconds, None
        for callback in self.on_end:
            callback(away)
        lasted, self._began_at = time.monotonic() - began_at, None
        self._over += 1
        self._answers = False
        events.emit(events.StoreFound(backend=self._backend, seconds=lasted))
        if self._circuit.is_open:
            events.emit(events.BreakerClosed(**self._about()))
        self._circuit = CLOSED

    def _problem(self, error: BaseException, *, answers: bool) -> str:
        if not answers:
            return f"the backend {self._backend} does not answer"
        if self._database is not None and is_schema_missing(error):
            return (
                f"the database {self._database!r} lacks tables or columns of django_jobs "
                f"(run {TablesMissing.way_out(self._database)})"
            )
        return f"the backend {self._backend} answers with an error"

    def _about(self) -> dict[str, str]:
        return {"kind": "backend", "backend": self._backend, "subject": self._backend}


def is_answer(error: BaseException) -> bool:
    """Whether the store itself answered with this error; otherwise it could not be reached."""
    if isinstance(error, StoreUnavailable):
        return error.answered
    if not isinstance(error, Error):
        return not isinstance(error, OSError)  # an answer that cannot be read
    if error.__cause__ is None:  # not from a driver
        return False
    return not is_connection_lost(error)


class Store:
    """Calls a backend, and waits while it cannot be used.

    ``ask`` always queries the store. Other work may be answered from a cache, which proves
    nothing: so during an outage ``ask`` is called first.
    """

    def __init__(
        self,
        outage: Outage,
        stopped: Callable[[], bool],
        ask: Callable[[], object] | None = None,
    ) -> None:
        self._outage = outage
        self._stopped = stopped
        self._ask = ask
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self.fails = False

    def call(self, work: Callable[[], T], *, proves: bool = True) -> T | None:
        """Return the answer, or None after a pause if it failed; the caller tries again.

        ``proves``: whether success ends an outage.
        """
        began_at = time.monotonic()
        if self._outage.asks():
            close_idle_connections()
        try:
            if proves and self.fails:
                self._ask_first()
            answer = work()
        except Exception as error:  # noqa: BLE001 - unexpected errors must not end the worker either
            self.fails = True
            self._outage.begins(error)
            close_idle_connections()
            # With jitter, so that many workers do not call a database at once when it comes back.
            # The time of a call that hung is part of the pause.
            pause = self._backoff.next() - (time.monotonic() - began_at)
            self._nap(spread(max(pause, FIRST_PAUSE)))
            return None
        if proves:
            self.fails = False
            self._backoff.reset()
            self._outage.ends()
        return answer

    def _ask_first(self) -> None:
        try:
            if self._ask is not None:
                self._ask()
        except Exception as error:
            # A timeout, or a single server that is away, is an answer as well.
            if kind_of_error(error) is ErrorKind.STORE and not spares_others(error):
                raise

    def _nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopped() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, FIRST_PAUSE))


def close_idle_connections() -> None:
    """Close every connection without an open transaction: the next statement reconnects."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


FIRST_RESTRAINT = 0.005


class Restraint:
    """Back off while waits end at once although nothing can be claimed.

    A row that another worker has locked is due for every worker and cannot be claimed: without
    a pause a worker would query for it again and again.
    """

    def __init__(self, most: float) -> None:
        self._backoff = Backoff(FIRST_RESTRAINT, most)

    def pause_after(self, lasted: float) -> float:
        """Seconds to pause after a wait of ``lasted`` seconds."""
        if lasted >= self._backoff.pause:
            self.end()
            return 0.0
        return self._backoff.next() - lasted

    def end(self) -> None:
        """Reset: there was work."""
        self._backoff.reset()


LONGEST_SETTLE_PAUSE = 2.0
REFUSED_PAUSE = 60.0
"""Seconds until a job is run again if the store refuses every settle."""
NO_ANSWER = "no answer came before the lease ended whether the settle counted"
UNANSWERED = Verdict("error", Settled.UNKNOWN, reason=NO_ANSWER)
"""The store is unavailable."""
LATER = Verdict("error", Settled.UNKNOWN, reason=f"{NO_ANSWER}: its row was locked, or too slow")
"""The store works, but this settle could not be done now."""
REFUSED = "refused"


class NoAnswerError(Exception):
    """The settle could not be done in time."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class SettleRefusedError(Exception):
    """The store answers, but refuses the settle."""


class Asker:
    """Settles one delivery at a time. ``hurried``: whether there is no time for retries.

    A settle whose connection broke may have counted or not. Repeating it is safe, because it needs
    the token; if the second one is "lost", the job's row tells what happened. After the lease this
    can no longer be found out, and the next lease of the job decides. If the store refuses a
    settle, it is repeated without the refused texts: work is never repeated for the sake of its
    record.
    """

    def __init__(self, settler: Settler, outage: Outage) -> None:
        self.settler = settler
        self.outage = outage
        self.hurried: Callable[[], bool] = lambda: False

    def settle(self, run: Run, outcome: Outcome, seconds: float, *, again: bool = False) -> Verdict:
        """Return the verdict; its answer is unknown only after ``seconds`` of retries.

        ``again``: the settle was sent before, and its answer was lost.
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
                raise NoAnswerError(self.unknown_verdict())
            if verdict.answer is Settled.LOST and asked > 1 and self._counted(run, verdict):
                return verdict._replace(answer=Settled.SETTLED)
            return verdict

        return self._with_retries(ask, seconds, again=again)

    def unknown_verdict(self) -> Verdict:
        """The verdict of an unknown answer: the connection broke, or the row is locked."""
        return LATER if is_connected(self.settler.backend) else UNANSWERED

    def _given_up(self, run: Run, refusal: BaseException | None, seconds: float) -> Verdict:
        """Give back, for later and without a charge, a job if the store refuses every settle."""
        backend = self.settler.backend
        delay = REFUSED_PAUSE if backend.capabilities.delay else None
        reason = f"the store refuses the settle: {refusal}"

        def work() -> Verdict:
            answer = backend.nack(run.lease, delay, charge=Charge.NOTHING)
            return Verdict("requeued", answer, delay or 0.0, reason)

        try:
            return self._with_retries(work, seconds, again=False)
        except SettleRefusedError:
            return Verdict(REFUSED, Settled.UNKNOWN, reason=reason)

    def _tell_refused(self, run: Run, error: BaseException) -> None:
        events.emit(
            events.SettleRefused(
                job_id=run.lease.id,
                queue=run.lease.queue,
                handler=one_line(run.handler),
                attempt=run.attempts + 1,
                trace_id=run.trace_id,
                error=error,
            )
        )

    def is_gone(self, run: Run, seconds: float) -> bool:
        """Whether the row of a job is gone, so that an earlier ack counted."""
        backend = self.settler.backend
        if not isinstance(backend, Inspects):
            raise lacking(backend, "peek", run.lease.id)
        find = backend.find
        try:
            return self._with_retries(lambda: find(run.lease.id) is None, seconds, again=False)
        except (NoAnswerError, SettleRefusedError):
            return False

    def _counted(self, run: Run, verdict: Verdict) -> bool:
        """Whether the lease was lost because the first, unanswered settle counted."""
        backend = self.settler.backend
        if not can_peek(backend):
            return True
        row = backend.find(run.lease.id)
        if row is None:
            return True
        if verdict.ends:
            return False
        header = row.message.header
        charged = header.attempts > run.attempts or header.crashes > run.crashes
        return charged or row.state != "running"

    def _with_retries(self, work: Callable[[], T], seconds: float, *, again: bool) -> T:
        """Repeat the work until there is an answer; raises NoAnswerError when time is up."""
        deadline = time.monotonic() + seconds
        backoff: Backoff | None = None  # most calls are answered at once
        while True:
            try:
                answer = work()
            except NoAnswerError as unknown:
                verdict = unknown.verdict
                if verdict is UNANSWERED:
                    self.outage.begins(ConnectionError("the connection broke during a settle"))
            except (Error, OSError) as error:
                verdict = self._without_answer(error, again=again)
            else:
                self.outage.ends()
                return answer
            close_idle_connections()
            backoff = backoff or Backoff(FIRST_PAUSE, LONGEST_SETTLE_PAUSE)
            self._nap(min(spread(backoff.next()), deadline - time.monotonic()))
            if time.monotonic() >= deadline or self.hurried():
                raise NoAnswerError(verdict)
            again = True

    def _without_answer(self, error: Exception, *, again: bool) -> Verdict:
        """The verdict of an error after which a settle may be repeated; otherwise raises."""
        kind = kind_of_error(error, twice=again)
        if kind is ErrorKind.REFUSED:
            raise SettleRefusedError from error
        if self._in_transaction():
            raise error
        if kind is ErrorKind.LATER:
            return LATER
        self.outage.begins(error)
        return UNANSWERED

    def _in_transaction(self) -> bool:
        """Whether the store's connection is in a transaction of the caller, now broken."""
        database = self.settler.backend.home
        return database is not None and connections[database].in_atomic_block

    def _nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.hurried() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, FIRST_PAUSE))


def _smaller(outcome: Outcome, refusal: BaseException) -> list[tuple[Outcome, bool]]:
    """Reduced forms of an outcome that the store refused, each with whether to keep a record.

    First with its texts in ASCII, which every encoding has; then with a note instead of them;
    then without a record.
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
    """The outcome with each of its texts changed."""
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
