"""Sends the public signals for events, and contains errors of their receivers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django_jobs import signals
from django_jobs.execution.attempt import StopNow, is_running, user_code
from django_jobs.execution.connections import clean_connections
from django_jobs.execution.timeout import soft_timeout
from django_jobs.handlers.base import JobTimeout
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.dispatch import Signal

    Send = Callable[[str, dict[str, Any]], object]

RECEIVERS_SECONDS = 10.0
"""The time limit for all receivers of one signal together."""

SIGNALS: dict[str, Signal] = {
    "job_dead": signals.job_dead,
    "job_crashed": signals.job_crashed,
    "breaker_opened": signals.breaker_opened,
}
_KINDS: dict[type[events.Event], str] = {
    events.JobDied: "job_dead",
    events.JobCrashed: "job_crashed",
    events.BreakerOpened: "breaker_opened",
}
_METRICS_ONLY = frozenset({"seconds", "waited"})


def send_here(name: str, fields: dict[str, Any]) -> None:
    """Call the receivers in this process. Their errors are reported, not raised."""
    try:
        with clean_connections(), user_code(), soft_timeout(RECEIVERS_SECONDS):
            answers = SIGNALS[name].send_robust(sender=None, **fields)
        for receiver, answer in answers:
            if isinstance(answer, Exception):
                receiver_name = getattr(receiver, "__qualname__", repr(receiver))
                failed = {"signal": name, "receiver": receiver_name, "about": _subject(fields)}
                events.emit(events.ReceiverFailed(**failed, error=answer))
    except StopNow:
        if is_running():  # inside a run, which is to end as well
            raise
        emit_lost(name, fields, "the worker was told to stop at once")
    except JobTimeout:
        emit_lost(name, fields, f"its receivers took more than {RECEIVERS_SECONDS:g} seconds")
    except BaseException as error:  # noqa: BLE001 - a receiver may raise SystemExit
        emit_lost(name, fields, f"a receiver raised {type(error).__name__}")


def emit_lost(name: str, fields: dict[str, Any], why: str) -> None:
    """Report that not all receivers were called."""
    events.emit(events.SignalLost(signal=name, about=_subject(fields), why=why))


def _subject(fields: dict[str, Any]) -> str:
    return fields["job_id"] if "job_id" in fields else f"the {fields['kind']} {fields['subject']}"


_send: Send = send_here


def wants(kind: type[events.Event]) -> bool:
    """Whether a kind of event has a signal with receivers."""
    name = _KINDS.get(kind)
    return name is not None and SIGNALS[name].has_listeners()


def announce(event: events.Event) -> None:
    """Send the signal of an event, if it has one with receivers."""
    if wants(type(event)):
        name = _KINDS[type(event)]
        left_out = _METRICS_ONLY if isinstance(event, events.JobEvent) else ()
        fields = {field: getattr(event, field) for field in event.names if field not in left_out}
        _send(name, fields)


@contextmanager
def sending_through(send: Send) -> Iterator[None]:
    """Send signals through ``send`` inside the block, so that this process runs no user code."""
    global _send  # noqa: PLW0603 - events come to the process, and so do their subscribers
    before, _send = _send, send
    try:
        yield
    finally:
        _send = before
