"""Run coroutine handlers that share an event loop.

Nothing here blocks the loop. Hooks and retry policies are plain functions of the user, so they
run in the thread that Django keeps for sync code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from django_jobs.execution.attempt import EndingCopies, with_output
from django_jobs.execution.coroutines import within
from django_jobs.execution.errors import error_text
from django_jobs.execution.output import captured_output
from django_jobs.handlers.base import JobTimeout
from django_jobs.outcome import Failed, Interrupted, Outcome, Succeeded

if TYPE_CHECKING:
    from django_jobs.execution.attempt import Attempt


@dataclass(slots=True)
class Cut:
    """Why a run is cancelled from outside; empty unless it is."""

    why: str = ""
    timed_out: bool = False


async def run_among_others(attempt: Attempt, cut: Cut) -> Outcome:
    """The outcome of a run, as ``Attempt.run`` returns it."""
    with captured_output() as captured:
        try:
            outcome = await _outcome(attempt, cut)
        except BaseException as error:  # noqa: BLE001 - a class of the user's broke the judging
            outcome = Failed(error_text(error), fingerprint=attempt.fingerprint(error))
    return with_output(outcome, captured.text())


async def _outcome(attempt: Attempt, cut: Cut) -> Outcome:
    try:
        return Succeeded(await _called(attempt))
    except BaseException as raised:  # noqa: BLE001 - SystemExit and its like fail the job, not the worker
        error: BaseException = raised
    if cut.timed_out and attempt.timeout is not None:
        error = JobTimeout(attempt.timeout)
    elif cut.why:
        return Interrupted(cut.why)
    if attempt.own_policy is None:
        return attempt.outcome_of(error)
    return await sync_to_async(attempt.outcome_of)(error)


async def _called(attempt: Attempt) -> Any:
    """Before-hook, coroutine and after-hook."""
    handler, context = attempt.handler, attempt.context
    error: BaseException | None = None
    try:
        if handler.before is not None:
            await sync_to_async(handler.before)(context)
        with EndingCopies():
            return attempt.keep(await within(handler.handle(context), attempt.timeout))
    except BaseException as raised:
        error = raised
        raise
    finally:
        if handler.after is not None:
            await sync_to_async(attempt.after)(error)
