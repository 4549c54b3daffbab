"""The handlers that come with the package. They run nothing until a site allows it, twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.handlers.command import CommandHandler
from django_jobs.handlers.event import EventHandler
from django_jobs.handlers.shell import ShellHandler
from django_jobs.handlers.url import UrlHandler

if TYPE_CHECKING:
    from django_jobs.conf import JobsSettings
    from django_jobs.handlers.base import Handler
    from django_jobs.handlers.registry import Registry


def register_built_in(registry: Registry, settings: JobsSettings) -> None:
    """Register them; what their lists allow is looked up for each job."""
    event = EventHandler()
    event.resolve(settings)
    handlers: tuple[Handler, ...] = (CommandHandler(), ShellHandler(), event, UrlHandler())
    for handler in handlers:
        registry.register(handler)
