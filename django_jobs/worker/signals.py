"""From events to the public signals: where they are sent, and how receivers are contained."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django_jobs import signals
from django_jobs.execution.attempt import StopNow, is_running, user_code
from django_jobs.execution.connections import clean_connections
from django_jobs.execution.timeout import JobTimeout, soft_timeout
from django_jobs.telemetry import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.dispatch import Signal

    Send = Callable[[str, dict[str, Any]], object]

RECEIVERS_SECONDS = 10.0
"""All receivers of one signal together have so long."""

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
_FOR_FIGURES = frozenset({"seconds", "waited"})


def send_here(name: str, facts: dict[str, Any]) -> None:
    """Call the receivers in this process. What goes wrong in them goes no further."""
    try:
        with clean_connections(), user_code(), soft_timeout(RECEIVERS_SECONDS):
            answers = SIGNALS[name].send_robust(sender=None, **facts)
        for receiver, answer in answers:
            if isinstance(answer, Exception):
                told = getattr(receiver, "__qualname__", repr(receiver))
                failed = {"signal": name, "receiver": told, "about": _subject(facts)}
                events.emit(events.ReceiverFailed(**failed, error=answer))
    except StopNow:
        if is_running():  # inside a run, which is to end as well
            raise
        lost(name, facts, "the worker was told to stop at once")
    except JobTimeout:
        lost(name, facts, f"its receivers took more than {RECEIVERS_SECONDS:g} seconds")
    except BaseException as error:  # noqa: BLE001 - SystemExit and its like of a receiver
        lost(name, facts, f"a receiver raised {type(error).__name__}")


def lost(name: str, facts: dict[str, Any], why: str) -> None:
    """Say that not all receivers have heard of it."""
    events.emit(events.SignalLost(signal=name, about=_subject(facts), why=why))


def _subject(facts: dict[str, Any]) -> str:
    return facts["job_id"] if "job_id" in facts else f"the {facts['kind']} {facts['subject']}"


_send: Send = send_here


def wants(kind: type[events.Event]) -> bool:
    """Whether a kind of events has a signal that anybody listens to."""
    name = _KINDS.get(kind)
    return name is not None and SIGNALS[name].has_listeners()


def announce(event: events.Event) -> None:
    """Send the signal of an event, if it has one and anybody listens."""
    if wants(type(event)):
        name = _KINDS[type(event)]
        left_out = _FOR_FIGURES if isinstance(event, events.JobEvent) else ()
        facts = {fact: getattr(event, fact) for fact in event.names if fact not in left_out}
        _send(name, facts)


@contextmanager
def sent_by(send: Send) -> Iterator[None]:
    """Let somebody else send the signals meanwhile: no user code runs in this process."""
    global _send  # noqa: PLW0603 - events come to the process, and so do their subscribers
    before, _send = _send, send
    try:
        yield
    finally:
        _send = before
