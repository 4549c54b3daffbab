"""Checks of values, names, backends and signing keys in DJANGO_JOBS."""

from __future__ import annotations

import difflib
import os
import sys
from typing import TYPE_CHECKING

from django.conf import ENVIRONMENT_VARIABLE
from django.conf import settings as django_settings
from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it
from django.utils.module_loading import import_string

from django_jobs.backends.base import Backend
from django_jobs.conf.reading import SETTING_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.checks import CheckMessage

    from django_jobs.conf import BackendConfig, JobsSettings, Problem


SHORTEST_LEASE = 3
NAME = "DJANGO_JOBS"
ALIKE = 0.8


def check_values(_settings: JobsSettings, problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """The problems found while reading the settings."""
    for problem in problems:
        yield Error(f"{problem.message}.", hint=problem.hint, id=problem.kind.value)


def check_name(_settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """If DJANGO_JOBS is not set, no other setting looks like a misspelling of it."""
    if hasattr(django_settings, NAME):
        return
    for name in _names_alike():
        yield Warning(
            f"The setting {name} looks like {NAME}, which is not set: nothing reads it.",
            hint=f"Name it {NAME}. If it belongs to another app, silence this warning.",
            id="django_jobs.W017",
        )


def _names_alike() -> list[str]:
    """Settings with a similar name and similar content.

    Also looks at the module, because Django ignores names that are not in capitals.
    """
    path = getattr(django_settings, "SETTINGS_MODULE", None)
    module = sys.modules.get(path or os.environ.get(ENVIRONMENT_VARIABLE, ""))
    names = dict(vars(module)) if module else {}
    names |= {
        name: getattr(django_settings, name) for name in dir(django_settings) if _is_near(name)
    }
    return sorted(name for name, value in names.items() if _is_near(name) and _is_alike(value))


def _is_near(name: str) -> bool:
    bare = name.upper().replace("_", "")
    if bare in {"JOBS", "JOBSSETTINGS", "JOBSCONFIG"} or bare.startswith("DJANGOJOBS"):
        return True
    ratio = difflib.SequenceMatcher(None, bare, NAME.replace("_", "")).ratio()
    return ratio >= ALIKE


def _is_alike(value: object) -> bool:
    """Whether at least half of its keys are ours; many settings have similar names."""
    if not isinstance(value, dict) or not value:
        return False
    matching = sum(isinstance(key, str) and key.upper() in SETTING_NAMES for key in value)
    return 2 * matching >= len(value)


def check_backend_classes(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Each BACKEND names a Backend class, and each Backend accepts its OPTIONS."""
    for config in settings.backends.values():
        if not config.path:
            continue
        where = f"BACKENDS[{config.alias!r}]"
        try:
            backend_class = import_string(config.path)
        except Exception as error:  # noqa: BLE001 - importing runs code that may raise anything
            yield Error(
                f"{where}['BACKEND'] is {config.path!r}, which cannot be imported: {error}.",
                hint="Correct the path, or install what it needs (the extras redis, "
                "beanstalk and servicebus).",
                id="django_jobs.E003",
            )
        else:
            yield from _check_backend(config, backend_class, where)


def _check_backend(
    config: BackendConfig, backend_class: object, where: str
) -> Iterator[CheckMessage]:
    if not (isinstance(backend_class, type) and issubclass(backend_class, Backend)):
        yield Error(
            f"{where}['BACKEND'] is {config.path!r}, which is not a Backend.",
            hint="Name a subclass of django_jobs.backends.base.Backend.",
            id="django_jobs.E004",
        )
        return
    try:
        yield from backend_class(config.alias, config.options).check()
    except Exception as error:  # noqa: BLE001 - third-party classes raise anything
        yield Error(
            f"{where} ({config.path}) cannot be set up: {type(error).__name__}.",
            hint=f"Correct {where}['OPTIONS']. The error is not shown here because it may hold a "
            f"password; in manage.py shell, backends[{config.alias!r}] of "
            "django_jobs.backends.registry shows it in full.",
            id="django_jobs.E016",
        )


def check_lease(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """A lease is long enough to be renewed: a statement may take a third of it, and is retried."""
    for path, seconds in _leases(settings).items():
        if seconds < SHORTEST_LEASE:
            yield Error(
                f"{path} is {seconds:g} seconds, too short to be renewed in time.",
                hint=f"Use at least {SHORTEST_LEASE} seconds; the default is 30.",
                id="django_jobs.E013",
            )


def check_kill_grace(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """The grace lies between the soft timeout and the end of the lease."""
    grace = settings.kill_grace
    if grace == 0:
        yield Warning(
            "KILL_GRACE is 0: a job is killed at the very moment its timeout is raised in it.",
            hint="Allow a few seconds, so that a timeout is recorded as a timeout, with a "
            "traceback, and not as a crash.",
            id="django_jobs.W003",
        )
    for path, seconds in _leases(settings).items():
        if grace >= seconds:
            yield Warning(
                f"KILL_GRACE is {grace:g} seconds, and {path} only {seconds:g}: while leases "
                "cannot be renewed, a job that ignores its timeout still runs when another "
                "worker starts it again.",
                hint=f"Keep KILL_GRACE well below {path}.",
                id="django_jobs.W004",
            )


def check_metrics(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Each entry of METRICS names a collector class."""
    for path in settings.metrics:
        try:
            collector = import_string(path)
        except Exception as error:  # noqa: BLE001 - importing runs code that may raise anything
            yield Error(
                f"METRICS names {path!r}, which cannot be imported: {error}.",
                hint="Correct the path, or install what it needs (the extra otel).",
                id="django_jobs.E050",
            )
            continue
        if not all(callable(getattr(collector, name, None)) for name in ("increment", "observe")):
            yield Error(
                f"METRICS names {path!r}, which is not a collector.",
                hint="Name a class that has the methods increment(name, queue, by=1) and "
                "observe(name, queue, seconds).",
                id="django_jobs.E050",
            )


def _leases(settings: JobsSettings) -> dict[str, float]:
    own = {
        f"QUEUES[{queue.name!r}]['LEASE_SECONDS']": queue.lease_seconds
        for queue in settings.queues.values()
        if queue.lease_seconds is not None
    }
    return {"LEASE_SECONDS": settings.lease_seconds, **own}


CONFIGURATION_CHECKS = (
    check_name,
    check_values,
    check_backend_classes,
    check_lease,
    check_kill_grace,
    check_metrics,
)


# Checks of keys and signatures. No message shows a key.

SHORTEST_KEY = 16
GOOD_KEY = 32
VARIED_KEY = 8


def check_verification(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Verification is on: without it a forged message would run."""
    if settings.verify_signatures:
        return
    for config in settings.backends.values():
        carrier = _class_of(config.path)
        if carrier is None or _runs_where_it_enqueues(carrier):
            continue
        if carrier.trusted_store:
            yield Warning(
                f"VERIFY_SIGNATURES is False: write access to the job table of the "
                f"backend {config.alias!r} is enough to decide what workers run.",
                hint="Remove VERIFY_SIGNATURES; to retire a key, list the new one first in "
                "SIGNING_KEYS instead.",
                id="django_jobs.W001",
            )
        else:
            yield Error(
                f"VERIFY_SIGNATURES is False, which has no effect on the backend "
                f"{config.alias!r} ({config.path}): its jobs are verified anyway, because anyone "
                "who can reach its store could make workers run anything.",
                hint="Remove VERIFY_SIGNATURES. It applies only to jobs in your own database.",
                id="django_jobs.E009",
            )


def _class_of(path: str) -> type[Backend] | None:
    """The class of a backend; None for what is reported elsewhere (E003, E004)."""
    try:
        backend_class = import_string(path)
    except Exception:  # noqa: BLE001 - importing runs code that may raise anything
        return None
    return (
        backend_class
        if isinstance(backend_class, type) and issubclass(backend_class, Backend)
        else None
    )


def _runs_where_it_enqueues(carrier: type[Backend]) -> bool:
    """Whether jobs of the backend never leave the process."""
    return carrier.ends_with_process or carrier.runs_at_enqueue


def check_key_strength(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Keys cannot be guessed: a guessed key allows forged messages."""
    way_out = (
        "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(48))'. List it "
        "first in SIGNING_KEYS, and keep the old one behind it until its jobs have run."
    )
    for key in settings.signing_keys:
        length = len(key.secret)
        if length < SHORTEST_KEY:
            yield Error(
                f"The signing key {key.key_id!r} has {length} bytes and can be guessed.",
                hint=f"Use at least {GOOD_KEY}. {way_out}",
                id="django_jobs.E010",
            )
        elif length < GOOD_KEY or len(set(key.secret)) < VARIED_KEY:
            yield Warning(
                f"The signing key {key.key_id!r} is weak: {length} bytes, "
                f"{len(set(key.secret))} different ones.",
                hint=f"Use at least {GOOD_KEY} random bytes. {way_out}",
                id="django_jobs.W002",
            )


SECURITY_CHECKS = (check_verification, check_key_strength)
