"""How a run can end.

The union is closed: settling matches it exhaustively, and a type checker complains when
a member is forgotten. Whether a failure is worth retrying, and after how long, is data of
the outcome; settling decides what follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

ASKED_TO_STOP = "an operator asked it to stop"


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An exception as text. It is never turned back into one."""

    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""

    value: Any = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, or ran out of time. This consumes an attempt."""

    error: ErrorText
    retryable: bool = True
    delay: float | None = None
    output: str = ""
    timed_out: bool = False
    fingerprint: str = ""

    def with_output(self, output: str) -> Failed:
        return replace(self, output=output)


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The job is put back and consumes nothing.

    ``put_off``: the worker could not judge the message; the store keeps the first such moment.
    """

    delay: float
    reason: str = ""
    put_off: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job was cancelled, by its handler or by an operator."""

    reason: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The message failed a check and never reached a handler."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """There was nothing to do: the work of this idempotency key is already done."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran this job alone ended without a verdict."""

    detail: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker stopped the run: this counts neither as an attempt nor as a crash.

    ``suspect``: this job may have ended its process, so it runs alone next. ``delay``: seconds
    until it is due again, where the store can wait. ``begun``: whether its handler may have been
    called.
    """

    reason: str = ""
    suspect: bool = False
    delay: float | None = None
    begun: bool = True


Outcome = Succeeded | Failed | Snoozed | Cancelled | Rejected | Skipped | Crashed | Interrupted


def cancelled_as_asked(outcome: Outcome) -> Outcome:
    """The outcome of a run that was asked to stop: it may succeed, but is not retried."""
    match outcome:
        case Succeeded() | Cancelled():
            return outcome
        case Failed(error):
            error_text = ": ".join(part for part in (error.type, error.message) if part)
            return Cancelled(f"{ASKED_TO_STOP}, and it ended with {error_text}", outcome.output)
        case _:
            return Cancelled(ASKED_TO_STOP)
