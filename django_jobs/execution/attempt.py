"""Run a handler once, and say how it ended. Nothing here retries, sleeps or settles."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_jobs.execution.capture import captured_output
from django_jobs.execution.errors import error_text, fingerprint
from django_jobs.execution.outcome import (
    Cancel,
    Cancelled,
    Failed,
    Interrupted,
    Outcome,
    Retry,
    Snooze,
    Snoozed,
    Succeeded,
)
from django_jobs.execution.retry import LONGEST_DELAY, RetryPolicy
from django_jobs.execution.timeout import JobTimeout, soft_timeout
from django_jobs.telemetry.events import AfterHookFailed, RetryPolicyFailed, emit

if TYPE_CHECKING:
    from django_jobs.handlers.base import Handler, JobContext

LOOP_GRACE = 1.0


class StopNow(BaseException):
    """The worker must stop at once: a second signal. The run is interrupted, not failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of one handler, with all it needs and nothing of the queue."""

    handler: Handler
    context: JobContext
    timeout: float | None = None
    own_policy: RetryPolicy | None = None

    def run(self) -> Outcome:
        """The outcome of the run; only StopNow is turned into one rather than raised."""
        with captured_output() as captured:
            try:
                outcome = self._outcome()
            except StopNow:
                outcome = Interrupted("the worker was told to stop at once")
        return _with_output(outcome, captured.text())

    def _outcome(self) -> Outcome:
        try:
            return Succeeded(self._called())
        except StopNow:
            raise
        except Retry as asked:
            return self._failed(asked, delay=asked.delay)
        except Snooze as asked:
            return Snoozed(asked.delay, asked.reason)
        except Cancel as asked:
            return Cancelled(asked.reason)
        except JobTimeout as late:
            return self._failed(late, timed_out=True)
        except BaseException as error:  # noqa: BLE001 - SystemExit and its like fail the job, not the worker
            return self._judged(error)

    def _called(self) -> Any:
        """Before-hook, handler and after-hook, all inside the timeout."""
        with soft_timeout(self._alarm_after()):
            error: BaseException | None = None
            try:
                _hook(self.handler, "before", self.context)
                return _awaited(self.handler.handle(self.context), self.timeout)
            except BaseException as raised:
                error = raised
                raise
            finally:
                self._after(error)

    def _alarm_after(self) -> float | None:
        # The event loop has a time limit of its own; the alarm is for what blocks it.
        grace = LOOP_GRACE if getattr(self.handler, "is_coroutine", False) else 0.0
        return None if self.timeout is None else self.timeout + grace

    def _after(self, error: BaseException | None) -> None:
        try:
            _hook(self.handler, "after", self.context, error)
        except Exception as raised:  # noqa: BLE001 - too late to change anything; told, not hidden
            emit(AfterHookFailed(error=raised, **self._identity()))

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
        discard_on = getattr(self.handler, "discard_on", ())
        if discard_on and isinstance(error, discard_on):
            text = error_text(error)
            return Cancelled(f"discarded on {text.type}: {text.message}")
        retry_on = getattr(self.handler, "retry_on", ())
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
            delay=delay,
            timed_out=timed_out,
            fingerprint=fingerprint(self.handler.key, error),
        )

    def _own_delay(self, policy: RetryPolicy) -> tuple[float | None, bool]:
        """A user's policy runs here, where user code runs; None from it means no retry."""
        try:
            seconds = policy.delay(self.context.attempt)
            if seconds is None:
                return None, False
            return min(max(float(seconds), 0.0), LONGEST_DELAY), True
        except Exception as raised:  # noqa: BLE001 - a broken policy must not lose the job
            emit(RetryPolicyFailed(error=raised, **self._identity()))
            return 0.0, True


def _hook(handler: Handler, name: str, *args: Any) -> None:
    hook = getattr(handler, name, None)
    if hook is not None:
        hook(*args)


def _awaited(value: Any, timeout: float | None) -> Any:
    if not inspect.isawaitable(value):
        return value

    async def run() -> Any:
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await value
        except TimeoutError:
            if timeout is not None and limit.expired():
                raise JobTimeout(timeout) from None
            raise

    return asyncio.run(run())


def _with_output(outcome: Outcome, output: str) -> Outcome:
    match outcome:
        case Succeeded(value):
            return Succeeded(value, output)
        case Cancelled(reason):
            return Cancelled(reason, output)
        case Failed():
            return outcome.with_output(output)
        case _:
            return outcome
