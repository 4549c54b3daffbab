"""Exceptions by which a handler steers its own job, and the one raised in it on timeout."""

from __future__ import annotations

from datetime import timedelta


class JobTimeout(BaseException):
    """The handler's time is up. No ``Exception``, so that ``except Exception`` lets it pass."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the job exceeded its timeout of {seconds:g} seconds")
        self.seconds = seconds


class HandlerSignal(Exception):
    """Base of what a handler raises on purpose to steer its own job."""


class Retry(HandlerSignal):
    """Fail this attempt and run again after ``delay`` (seconds or timedelta).

    Without a delay the job's own retry policy decides.
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked to be retried")
        self.delay = _seconds(delay)
        self.reason = reason


class Snooze(HandlerSignal):
    """Put the job back for ``delay`` (seconds or timedelta) without consuming an attempt.

    It waits for a second at least: it may be repeated without end.
    """

    def __init__(self, delay: float | timedelta, reason: str = "") -> None:
        super().__init__(reason or "the handler asked to be run later")
        self.delay = _seconds(delay) or 0.0
        self.reason = reason


class Cancel(HandlerSignal):
    """End the job here: neither a success nor a failure to be retried."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler called the job off")
        self.reason = reason


def _seconds(delay: float | timedelta | None) -> float | None:
    """A plain float: it is sent to another process and to database drivers."""
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if not seconds >= 0:
        raise ValueError(f"a delay of {delay!r} seconds lies in the past; give 0 or more")
    return seconds
