"""A router that keeps the tables of django_jobs in the job databases; and which those are."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS, router
from django.utils.module_loading import import_string

from django_jobs.conf import get_settings, read_current
from django_jobs.exceptions import SettingsError, TablesMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.migrations import Migration
    from django.db.models import Model

    from django_jobs.conf import BackendConfig, JobsSettings

APP_LABEL = "django_jobs"
_SHIPPED = "django_jobs.backends."


class JobsRouter:
    """For DATABASE_ROUTERS, when jobs have a database of their own.

    The package's own queries name their alias and need no router. The admin and ``migrate``
    do.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        if model._meta.app_label != APP_LABEL:
            return None
        aliases = job_databases(_settings())
        # A row of another job database stays in that database.
        state = getattr(hints.get("instance"), "_state", None)
        alias = getattr(state, "db", None)
        return alias if alias in aliases else aliases[0]

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **_hints: Any) -> bool | None:
        if app_label != APP_LABEL:
            return None
        return db in job_databases(_settings())


def _settings() -> JobsSettings:
    """The settings, with defaults for those that are wrong.

    The system checks report what is wrong, and they use the router: an error here would end
    every command before that.
    """
    try:
        return get_settings()
    except SettingsError:
        return read_current()[0]


def tell_of_tables_not_made(
    using: str,
    plan: Sequence[tuple[Migration, bool]] = (),
    verbosity: int = 1,
    stdout: Any = None,
    **_kwargs: Any,
) -> None:
    """Say after ``migrate`` that a router kept it from creating the tables, and where they belong.

    Django reports a migration as OK, and records it, even if it did nothing.
    """
    mine = any(migration.app_label == APP_LABEL and not backwards for migration, backwards in plan)
    if verbosity < 1 or not mine or router.allow_migrate(using, APP_LABEL):
        return
    homes = job_databases(_settings())
    commands = " and ".join(TablesMissing.way_out(home) for home in homes)
    (stdout or sys.stdout).write(
        f"The tables of django_jobs were not made in {using!r}, although its migrations are "
        f"recorded there: DATABASE_ROUTERS keep them to {', '.join(map(repr, homes))}. "
        f"Unless it is done, run {commands}\n"
    )


@lru_cache(maxsize=4)
def job_databases(settings: JobsSettings) -> tuple[str, ...]:
    """The database aliases that hold job tables; the first is the one to read by default.

    Without a database backend, dead letters of the others still need a place: the default
    database.
    """
    configs = list(settings.backends.values())
    # A stable sort: the default backend first, sync last, the others as configured. The rows of
    # sync are of runs in this process; the rows of brokers belong to real jobs.
    configs.sort(
        key=lambda config: (
            config.alias != settings.default_backend,
            shipped_parent(config.path) == "sync",
        )
    )
    databases = [alias for config in configs if (alias := database_of(config)) is not None]
    databases = databases or [DEFAULT_DB_ALIAS]
    named = [config.outbox for config in configs if isinstance(config.outbox, str)]
    return tuple(dict.fromkeys([*databases, *named]))


def tables_beside(home: str | None, settings: JobsSettings) -> str:
    """The database for the rows of a backend's workers: its own, if that holds job tables."""
    databases = job_databases(settings)
    return home if home in databases else databases[0]


def outbox_database(settings: JobsSettings, backend: str) -> str | None:
    """The database alias of a backend's outbox; None where it has or needs none.

    A database backend needs none in its own database: an enqueue is an insert there.
    """
    config = settings.backends.get(backend)
    if config is None:
        return None
    queues = [name for name in settings.queues if settings.backend_for(name) == backend]
    if not (config.outbox or any(settings.queue(name).outbox for name in queues)):
        return None
    home = config.outbox if isinstance(config.outbox, str) else job_databases(settings)[0]
    return None if home == database_of(config) else home


def database_of(config: BackendConfig) -> str | None:
    """The database alias of a database or sync backend; None for all others."""
    if shipped_parent(config.path) not in {"database", "sync"}:
        return None
    return str(config.options.get("DATABASE", DEFAULT_DB_ALIAS))


def shipped_parent(path: str) -> str | None:
    """Which shipped backend ("database", "sync", …) a class is or descends from."""
    if path.startswith(_SHIPPED):
        return path.removeprefix(_SHIPPED).partition(".")[0]
    try:
        kind = import_string(path)
    except ImportError:
        return None
    for parent in getattr(kind, "__mro__", ()):
        name = parent.__module__.removeprefix(_SHIPPED).partition(".")[0]
        if parent.__module__.startswith(_SHIPPED) and name != "base":
            return str(name)
    return None
