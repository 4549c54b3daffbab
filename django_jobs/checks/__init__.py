"""System checks. Their code is imported when they run, as few processes run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.checks import register

from django_jobs.lazy import LazyFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.apps import AppConfig
    from django.core.checks import CheckMessage

TAG = "jobs"

_messages = LazyFunction("django_jobs.checks.messages.messages")


@register(TAG)
def check_jobs(
    app_configs: Sequence[AppConfig] | None = None, **_kwargs: Any
) -> list[CheckMessage]:
    """Check DJANGO_JOBS and the databases it names."""
    if app_configs is not None and all(app.label != "django_jobs" for app in app_configs):
        return []
    messages: list[CheckMessage] = _messages()
    return messages
