"""The handler ``event``, which sends a Django signal named in ``ALLOWED_EVENTS``.

The payload is ``{"name": …, "data": …}``. A path in a message is never imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.dispatch import Signal
from django.utils.module_loading import import_string

from django_jobs.conf import get_settings, read_current
from django_jobs.conf.model import nearest, shown
from django_jobs.exceptions import ConfigurationError, EventFailed, HandlerRefused, InvalidPayload
from django_jobs.handlers.base import Handler, HandlerSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django_jobs.conf import JobsSettings
    from django_jobs.handlers.base import JobContext

MOST_NAMED = 10


class EventHandler(Handler):
    """Sends a signal to all its receivers, and fails if any of them fails.

    Receivers get ``sender`` (this class), ``event`` (the name), ``data`` and ``context``.
    """

    key = "event"

    def __init__(self) -> None:
        self._resolved: tuple[JobsSettings | None, Mapping[str, Signal]] = (None, {})
        self.resolve(read_current()[0])  # before a worker forks: signals are imported once

    def resolve(self, settings: JobsSettings) -> None:
        """Import the signals that settings name, as far as possible; once per settings."""
        signals = {}
        for name, path in settings.allowed_events.items():
            signal, _problem = find_signal(path)
            if signal is not None:
                signals[name] = signal
        self._resolved = (settings, signals)

    def validate(self, payload: Any) -> None:
        self._allowed(payload)

    def destination(self, payload: Any) -> str:
        """The name of the event, whose receivers get the data."""
        return self._allowed(payload)

    def admit(self, payload: Any) -> None:
        self._allowed(payload)

    def handle(self, context: JobContext) -> int:
        """Send the signal; return the number of receivers."""
        name = self._allowed(context.payload)
        answers = self._signal(name).send_robust(
            sender=type(self), event=name, data=context.payload.get("data"), context=context
        )
        failed = [(receiver, answer) for receiver, answer in answers if _is_error(answer)]
        if failed:
            _raise(name, failed, len(answers))
        return len(answers)

    def _allowed(self, payload: Any) -> str:
        if (
            not isinstance(payload, dict)
            or not payload.keys() <= {"name", "data"}
            or not isinstance(payload.get("name"), str)
        ):
            raise InvalidPayload('event takes a payload of the form {"name": "…", "data": …}')
        name: str = payload["name"]
        allowed = get_settings().allowed_events
        if name not in allowed:
            raise HandlerRefused(
                f"the event {shown(name)} is not in ALLOWED_EVENTS{nearest(name, allowed)}; "
                "add it there if jobs may send it"
            )
        return name

    def _signal(self, name: str) -> Signal:
        settings = get_settings()
        if self._resolved[0] is not settings:
            self.resolve(settings)
        signal = self._resolved[1].get(name)
        if signal is None:
            path = settings.allowed_events[name]
            raise ConfigurationError(f"ALLOWED_EVENTS[{name!r}]: {path!r} {find_signal(path)[1]}")
        return signal


def find_signal(path: str) -> tuple[Signal | None, str]:
    """The signal that a dotted path of the settings leads to, or why there is none."""
    try:
        signal = import_string(path)
    except Exception as error:  # noqa: BLE001 - importing runs code that may raise anything
        return None, f"cannot be imported: {error}"
    if not isinstance(signal, Signal):
        return None, f"is a {type(signal).__name__}, not a django.dispatch.Signal"
    return signal, ""


def _is_error(answer: Any) -> bool:
    return isinstance(answer, Exception)


def _raise(name: str, failed: list[tuple[Callable[..., Any], Any]], count: int) -> None:
    errors = [error for _, error in failed]
    # If all of them raised a HandlerSignal, the first one steers the job.
    if all(isinstance(error, HandlerSignal) for error in errors):
        raise errors[0]
    reasons = "; ".join(
        f"{_path(receiver)}: {type(error).__name__}: {error}"
        for receiver, error in failed[:MOST_NAMED]
    )
    raise EventFailed(
        f"{len(failed)} of {count} receivers of the event {name!r} failed: {reasons}"
    ) from ExceptionGroup("what the receivers raised", errors)


def _path(receiver: Callable[..., Any]) -> str:
    named = receiver if hasattr(receiver, "__qualname__") else type(receiver)
    return f"{named.__module__}.{named.__qualname__}"
