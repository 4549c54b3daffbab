"""Run a handler once, and turn its end into an outcome. Nothing here retries, sleeps or settles.

Coroutines that share an event loop run in ``shared_loop``, with the same outcomes.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_jobs.execution.connections import doubt_connections
from django_jobs.execution.coroutines import within
from django_jobs.execution.errors import error_text, fingerprint, shown
from django_jobs.execution.output import captured_output
from django_jobs.execution.timeout import soft_timeout
from django_jobs.handlers.base import Cancel, JobTimeout, Retry, Snooze
from django_jobs.outcome import (
    Cancelled,
    Failed,
    Interrupted,
    Outcome,
    Snoozed,
    Succeeded,
)
from django_jobs.retry import LONGEST_DELAY, RetryPolicy
from django_jobs.telemetry.events import (
    AfterHookFailed,
    CommitHookFailed,
    RetryPolicyFailed,
    emit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_jobs.handlers.base import Handler, JobContext


# A handler may fork and let both processes return. The copy holds the same lease, connections and
# pipes: if it went on, it would settle the job a second time and take the next ones.
class EndingCopies:
    """End a process that was forked inside the block at the end of the block."""

    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        self._mine = os.getpid()

    def __exit__(self, *raised: object) -> None:
        if os.getpid() != self._mine:
            os._exit(int(raised[0] is not None))


LOOP_GRACE = 1.0
POLICY_SECONDS = 5.0
MAX_REASON = 4096
SHORTEST_SNOOZE = 1.0
"""A snooze consumes nothing: without a pause it could keep a worker busy for ever."""


class StopNow(BaseException):
    """The worker must stop at once: a second signal. The run is interrupted, not failed."""


# One item for each run, in any thread: append and pop need no lock.
_running: list[None] = []


def is_running() -> bool:
    """Whether user code runs in this process just now, so that StopNow would end a run."""
    return bool(_running)


@contextmanager
def user_code() -> Iterator[None]:
    """Let a second signal end user code inside the block that is not an attempt."""
    _running.append(None)
    try:
        yield
    finally:
        _running.pop()


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One run of one handler; knows nothing of the queue.

    ``keep`` encodes the return value. That calls methods of the value, which are user code, so it
    belongs to the run and to its time limit.
    """

    handler: Handler
    context: JobContext
    timeout: float | None = None
    own_policy: RetryPolicy | None = None
    keep: Callable[[Any], Any] = _as_it_is

    def run(self) -> Outcome:
        """Run the handler and return the outcome. StopNow becomes an outcome as well."""
        with captured_output() as captured:
            try:
                _running.append(None)
                try:
                    outcome = self._outcome()
                finally:
                    _running.pop()
            except StopNow:
                if is_running():  # a run inside a run: the outer one must end as well
                    raise
                outcome = Interrupted("the worker was told to stop at once")
            except BaseException as error:  # noqa: BLE001 - a class or signal of the user's broke the judging
                outcome = Failed(error_text(error), fingerprint=self.fingerprint(error))
        output = captured.text()
        return with_output(outcome, output) if output else outcome

    def _outcome(self) -> Outcome:
        try:
            return Succeeded(self._called())
        except BaseException as error:
            doubt_connections(error)
            if isinstance(error, StopNow):
                raise
            return self.outcome_of(error)  # SystemExit and its like fail the job, not the worker

    def outcome_of(self, error: BaseException) -> Outcome:
        """The outcome for an exception of the run."""
        match error:
            case Retry():
                return self._failed(error, delay=error.delay)
            case Snooze():
                return Snoozed(
                    max(_bounded(error.delay), SHORTEST_SNOOZE), _reason_text(error.reason)
                )
            case Cancel():
                return Cancelled(_reason_text(error.reason or error))
            case JobTimeout():
                return self._failed(error, timed_out=True)
            case _:
                return self._judged(error)

    def _called(self) -> Any:
        """Before-hook, handler and after-hook, all inside the timeout."""
        # The event loop has a time limit of its own; the alarm is for what blocks it.
        grace = LOOP_GRACE if self.handler.is_coroutine else 0.0
        with soft_timeout(self.timeout, grace):
            error: BaseException | None = None
            try:
                with EndingCopies():
                    if self.handler.before is not None:
                        self.handler.before(self.context)
                    return self.keep(_awaited(self.handler.handle(self.context), self.timeout))
            except BaseException as raised:
                error = raised
                raise
            finally:
                self.after(error)

    def after(self, error: BaseException | None) -> None:
        """Run the after-hook; its exceptions do not change the outcome."""
        try:
            if self.handler.after is not None:
                self.handler.after(self.context, error)
        except (StopNow, JobTimeout):
            raise
        except BaseException as raised:  # noqa: BLE001 - too late to change the outcome; logged
            emit(AfterHookFailed(error=raised, **self._identity()))

    def after_commit(self, hook: Callable[[], object]) -> None:
        """Call a function passed to ``on_commit()``; its exceptions do not change the outcome."""
        try:
            with user_code():
                hook()
        except BaseException as raised:
            doubt_connections(raised)
            emit(CommitHookFailed(error=raised, **self._identity()))
            if isinstance(raised, StopNow | JobTimeout):
                raise

    def _identity(self) -> dict[str, Any]:
        context = self.context
        return {
            "job_id": context.id,
            "queue": context.queue,
            "handler": self.handler.key,
            "attempt": context.attempt,
            "trace_id": context.trace_id,
        }

    def _judged(self, error: BaseException) -> Outcome:
        discard_on = self.handler.discard_on
        if discard_on and isinstance(error, discard_on):
            text = error_text(error)
            return Cancelled(f"discarded on {text.type}: {text.message}")
        retry_on = self.handler.retry_on
        return self._failed(error, retryable=not retry_on or isinstance(error, retry_on))

    def _failed(
        self,
        error: BaseException,
        *,
        retryable: bool = True,
        delay: float | None = None,
        timed_out: bool = False,
    ) -> Failed:
        if retryable and delay is None and self.own_policy is not None:
            delay, retryable = self._own_delay(self.own_policy)
        return Failed(
            error_text(error),
            retryable=retryable,
            delay=None if delay is None else _bounded(delay),
            timed_out=timed_out,
            fingerprint=self.fingerprint(error),
        )

    def fingerprint(self, error: BaseException) -> str:
        return fingerprint(self.handler.key, error)

    def _own_delay(self, policy: RetryPolicy) -> tuple[float | None, bool]:
        """The delay of a user's policy, which runs here as user code; None means no retry."""
        try:
            with soft_timeout(POLICY_SECONDS):
                seconds = policy.delay(self.context.attempt)
            return (None, False) if seconds is None else (float(seconds), True)
        except StopNow:
            raise
        except BaseException as raised:  # noqa: BLE001 - a broken policy must not lose the job
            emit(RetryPolicyFailed(error=raised, **self._identity()))
            return None, True


def _bounded(delay: float) -> float:
    seconds = float(delay)  # the exception's delay may be anything
    # NaN compares false with everything, so it falls to 0 here too.
    return min(seconds, LONGEST_DELAY) if seconds > 0 else 0.0


def _reason_text(reason: object) -> str:
    return shown(str(reason), MAX_REASON)


def _awaited(value: Any, timeout: float | None) -> Any:
    if value is None or not inspect.isawaitable(value):
        return value
    return asyncio.run(within(value, timeout))


def with_output(outcome: Outcome, output: str) -> Outcome:
    match outcome:
        case Succeeded(value):
            return Succeeded(value, output)
        case Cancelled(reason):
            return Cancelled(reason, output)
        case Failed():
            return outcome.with_output(output)
        case _:
            return outcome
