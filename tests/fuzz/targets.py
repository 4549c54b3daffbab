"""What hostile messages are after: handlers that count their calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from django_jobs.handlers.classes import ClassHandler
from django_jobs.handlers.command import CommandHandler
from django_jobs.handlers.event import EventHandler
from django_jobs.handlers.function import FunctionHandler
from django_jobs.handlers.payload_types import Payload
from django_jobs.handlers.shell.handler import ShellHandler
from django_jobs.handlers.url import UrlHandler

fuzz_event = Signal()
ALLOWED = {
    "QUEUES": {
        "default": {"HANDLERS": ["fuzz.function", "fuzz.typed", "command", "shell", "event", "url"]}
    },
    "ALLOWED_COMMANDS": {"clearsessions": [[]]},
    "ALLOWED_SHELL_COMMANDS": ["/bin/true"],
    "ALLOWED_EVENTS": {"fuzz.event": "tests.fuzz.targets.fuzz_event"},
    "ALLOWED_URLS": [{"URL": "https://hooks.example.com/*", "METHODS": ["POST"]}],
}


@dataclass
class Mail:
    to: str
    copies: int = 1


class Targets:
    """All kinds of handlers, which do nothing but count."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def handlers(self) -> list[Any]:
        made: list[Any] = [
            FunctionHandler("fuzz.function", self._called, takes_context=False),
            ClassHandler("fuzz.typed", self, payload=Payload("fuzz.typed", Mail)),
        ]
        for handler in (CommandHandler(), ShellHandler(), EventHandler(), UrlHandler()):
            handler.handle = self.handle  # type: ignore[method-assign]  # all but this is the real one
            made.append(handler)
        return made

    def handle(self, context: Any) -> None:
        self.calls.append(context.name)

    def _called(self, *_args: Any, **_kwargs: Any) -> None:
        self.calls.append("fuzz.function")


def bystander(*_args: Any, **_kwargs: Any) -> None:
    """Would leave a result if it were called."""


class Bystander:
    """The same with a typed payload."""

    payload_type = Mail

    def handle(self, context: Any) -> None:
        """Would leave a result if it were called."""
