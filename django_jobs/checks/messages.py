"""All checks together: configurations that are unsafe or cannot work.

Each check is a generator function, and each message has a stable id. None opens a connection,
so all of them run with every ``manage.py check``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.utils.module_loading import import_string

from django_jobs.checks.databases import DATABASE_CHECKS
from django_jobs.checks.handlers import HANDLER_CHECKS
from django_jobs.checks.settings import CONFIGURATION_CHECKS, SECURITY_CHECKS
from django_jobs.conf import read_current
from django_jobs.cron.decorator import DECLARED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.core.checks import CheckMessage

    from django_jobs.conf import JobsSettings

# Dotted paths, because a site without such settings does not import their code.
REACH_CHECKS = "django_jobs.checks.reach.REACH_CHECKS"
SCHEDULE_CHECKS = "django_jobs.checks.schedules.SCHEDULE_CHECKS"


def messages() -> list[CheckMessage]:
    """The messages of all checks that apply."""
    settings, problems = read_current()
    return [message for check in _checks(settings) for message in check(settings, problems)]


def _checks(settings: JobsSettings) -> Iterator[Any]:
    yield from (*CONFIGURATION_CHECKS, *SECURITY_CHECKS, *HANDLER_CHECKS)
    if _reaches_far(settings):
        yield from import_string(REACH_CHECKS)
    yield from DATABASE_CHECKS
    if _has_schedules(settings):
        yield from import_string(SCHEDULE_CHECKS)


def _reaches_far(settings: JobsSettings) -> bool:
    return any(
        (
            settings.allowed_events,
            settings.allowed_commands,
            settings.allowed_shell_commands,
            settings.allowed_urls,
        )
    )


def _has_schedules(settings: JobsSettings) -> bool:
    """Whether there may be schedules: in code, in settings or in a hook."""
    modules = (sys.modules.get(f"{config.name}.jobs") for config in apps.get_app_configs())
    return bool(DECLARED or settings.schedule or settings.schedule_handlers) or any(
        hasattr(module, "schedule") for module in modules
    )
