"""Every set-up that is unsafe or cannot work and can be seen without a job.

One generator function per matter, one stable id per message. None of them opens a
connection, so all of them run with every ``manage.py check``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_jobs.checks.databases import DATABASE_CHECKS
from django_jobs.checks.handlers import HANDLER_CHECKS, REACH_CHECKS, URL_CHECKS
from django_jobs.checks.schedules import SCHEDULE_CHECKS
from django_jobs.checks.settings import CONFIGURATION_CHECKS, SECURITY_CHECKS
from django_jobs.conf import read_current

if TYPE_CHECKING:
    from django.core.checks import CheckMessage


def messages() -> list[CheckMessage]:
    """What they say, one after the other."""
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
