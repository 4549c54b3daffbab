"""Read the setting DJANGO_JOBS: ``get_settings()`` returns one frozen, typed object.

``read_current()`` also returns the problems, for the system checks.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from django.conf import ENVIRONMENT_VARIABLE
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_jobs.conf.keys import ENVIRONMENT_KEY
from django_jobs.conf.model import (
    DATABASE_BACKEND,
    Arguments,
    BackendConfig,
    CircuitBreakerConfig,
    HandlerBreakerConfig,
    JobsSettings,
    QueueConfig,
    ShellConfig,
    UnknownHandlerPolicy,
    UrlEntry,
)
from django_jobs.conf.parsers import Problem, ProblemKind
from django_jobs.conf.reading import read
from django_jobs.exceptions import SettingsError

__all__ = [
    "DATABASE_BACKEND",
    "Arguments",
    "BackendConfig",
    "CircuitBreakerConfig",
    "HandlerBreakerConfig",
    "JobsSettings",
    "Problem",
    "ProblemKind",
    "QueueConfig",
    "ShellConfig",
    "UnknownHandlerPolicy",
    "UrlEntry",
    "get_settings",
    "read",
    "read_current",
]


ENVIRONMENT_NAME = "JOBS_ENVIRONMENT"
"""The environment variable that names the environment where ENVIRONMENT does not."""


@lru_cache(maxsize=1)
def get_settings() -> JobsSettings:
    """The settings in force; raises SettingsError, which names every problem.

    Returns the same object until a setting changes, so that it can be compared by identity.
    """
    settings, problems = read_current()
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise SettingsError(f"DJANGO_JOBS cannot be used as it is:{listed}")
    return settings


def read_current() -> tuple[JobsSettings, list[Problem]]:
    """The settings, with defaults in place of invalid values, and the problems."""
    return read(
        getattr(django_settings, "DJANGO_JOBS", {}),
        site=_site(),
        secret_key=_secret_key(),
        fallbacks=getattr(django_settings, "SECRET_KEY_FALLBACKS", ()),
        environment_key=os.environ.get(ENVIRONMENT_KEY),
        environment=os.environ.get(ENVIRONMENT_NAME),
    )


def _site() -> str:
    """The first package of ROOT_URLCONF, which web processes and workers of a project share.

    Settings for workers may have none: then the first package of the settings module.
    """
    urls = getattr(django_settings, "ROOT_URLCONF", None)
    if isinstance(urls, str) and urls:
        return urls.partition(".")[0]
    # Under override_settings the module is not on the settings object, hence the variable.
    module = getattr(django_settings, "SETTINGS_MODULE", None)
    return (module or os.environ.get(ENVIRONMENT_VARIABLE) or "django").partition(".")[0]


def _secret_key() -> str | bytes:
    try:
        return django_settings.SECRET_KEY
    except ImproperlyConfigured:
        return ""


def _forget(*, setting: str, **_kwargs: Any) -> None:
    if setting in {"DJANGO_JOBS", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "ROOT_URLCONF"}:
        get_settings.cache_clear()


setting_changed.connect(_forget)
