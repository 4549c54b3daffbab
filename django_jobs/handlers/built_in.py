"""The handlers that come with the package. They run nothing until a site allows it, twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.handlers.command import CommandHandler

if TYPE_CHECKING:
    from django_jobs.handlers.registry import Registry


def register_built_in(registry: Registry) -> None:
    """Register them; what their lists allow is looked up for each job."""
    for handler in (CommandHandler(),):
        registry.register(handler)
