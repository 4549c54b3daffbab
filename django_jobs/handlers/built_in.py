"""The handlers that come with the package. They run nothing until a site allows it, twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django_jobs.handlers.registry import Registry

PATHS: Final[Mapping[str, str]] = {
    "command": "django_jobs.handlers.command.CommandHandler",
    "shell": "django_jobs.handlers.shell.handler.ShellHandler",
    "event": "django_jobs.handlers.event.EventHandler",
    "url": "django_jobs.handlers.url.handler.UrlHandler",
    "django_jobs.carry_on": "django_jobs.jobs.carry_on",
}
"""By path, as most processes of a site only enqueue, and never need them."""


def register_built_in(registry: Registry) -> None:
    """Register them; what their lists allow is looked up for each job."""
    for key, path in PATHS.items():
        registry.register_path(key, path)
