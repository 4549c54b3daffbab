"""System checks: every set-up that is unsafe or cannot work and can be seen without a job.

One generator function per matter, one stable id per message. None of them opens a
connection, so all of them run with every ``manage.py check``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.checks import register

from django_jobs.checks.databases import DATABASE_CHECKS
from django_jobs.checks.handlers import HANDLER_CHECKS, REACH_CHECKS, URL_CHECKS
from django_jobs.checks.schedules import SCHEDULE_CHECKS
from django_jobs.checks.settings import CONFIGURATION_CHECKS, SECURITY_CHECKS
from django_jobs.conf import read_current

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.apps import AppConfig
    from django.core.checks import CheckMessage

__all__ = ["TAG", "check_jobs"]

TAG = "jobs"
_CHECKS = (
    *CONFIGURATION_CHECKS,
    *SECURITY_CHECKS,
    *HANDLER_CHECKS,
    *REACH_CHECKS,
    *DATABASE_CHECKS,
)


@register(TAG)
def check_jobs(
    app_configs: Sequence[AppConfig] | None = None, **_kwargs: Any
) -> list[CheckMessage]:
    """Everything that can be said of DJANGO_JOBS and the databases it names."""
    if app_configs is not None and all(app.label != "django_jobs" for app in app_configs):
        return []
    seen = read_current()
    checks = (
        *CONFIGURATION_CHECKS,
        *SECURITY_CHECKS,
        *HANDLER_CHECKS,
        *REACH_CHECKS,
        *URL_CHECKS,
        *DATABASE_CHECKS,
        *SCHEDULE_CHECKS,
    )
    return [message for check in checks for message in check(*seen)]
