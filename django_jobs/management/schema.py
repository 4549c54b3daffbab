"""Check that a database has been migrated before it is used."""

from __future__ import annotations

import pkgutil
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from django.apps import apps
from django.db import DatabaseError, Error, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from django_jobs.exceptions import TablesMissing
from django_jobs.routers import APP_LABEL, outbox_database, tables_beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.backends.base import Backend
    from django_jobs.conf import JobsSettings

RECORDS = "django_migrations"


def databases_of(backend: Backend, settings: JobsSettings) -> list[str]:
    """The aliases of the databases that a worker of a backend uses."""
    if backend.ends_with_process:
        return []
    home = tables_beside(backend.home, settings)
    outbox = outbox_database(settings, backend.alias)
    return list(dict.fromkeys([home, *([outbox] if outbox else [])]))


def require_tables(alias: str) -> None:
    """Raise TablesMissing, or Django's error if the database cannot be queried."""
    with _left_as_it_is(connections[alias]):
        missing = not_applied(alias)
    if missing:
        more = len(missing) - 3
        named = ", ".join(missing[:3]) + (f" and {more} more" if more > 0 else "")
        raise TablesMissing(alias, f"missing: {named}{before_migrate(alias, missing)}")


def not_applied(alias: str) -> list[str]:
    """The migrations of this code that a database lacks, at the cost of two queries.

    A database ahead of the code is fine: during a deploy, two versions share it. Where
    migrations are not recorded, as in tests that create tables without them, look at the tables
    instead. Elsewhere tables alone do not count: while MariaDB or MySQL runs a migration, its
    tables are there before their indexes.
    """
    connection = connections[alias]
    tables = set(connection.introspection.table_names())
    migrations = _of_this_code()
    applied = _recorded(connection) if migrations and RECORDS in tables else None
    ours = _our_tables()
    # A router that kept the tables out let Django record the migrations all the same.
    if applied is not None and ours & tables:
        return [name for name in migrations if name not in applied and not _replaces(name, applied)]
    absent = sorted(ours - tables)
    return absent and (migrations or absent)


def before_migrate(alias: str, missing: list[str]) -> str:
    """What to do first if ``migrate`` would find nothing to apply, or tables that exist."""
    connection = connections[alias]
    with _left_as_it_is(connection):
        tables = set(connection.introspection.table_names())
        recorded = _recorded(connection) if RECORDS in tables else None
    if recorded is None:
        return ""
    run = f"first run manage.py migrate {APP_LABEL}"
    if not recorded and _our_tables() <= tables:
        why = "not recorded as applied although the tables exist; if no migrate is running now"
        return f", {why}, {run} --fake --database {alias}"
    if recorded.isdisjoint(missing):
        return ""
    why = "recorded as applied while a router kept the tables out"
    return f", {why}; {run} zero --fake --database {alias}"


def _our_tables() -> set[str]:
    return {model._meta.db_table for model in apps.get_app_config(APP_LABEL).get_models()}


def _of_this_code() -> list[str]:
    """The names of our migrations, in order; none if MIGRATION_MODULES disables them."""
    module, _ = MigrationLoader.migrations_module(APP_LABEL)
    if module is None:
        return []
    modules = pkgutil.iter_modules(import_module(module).__path__)
    return sorted(info.name for info in modules if not info.ispkg and info.name[0] not in "_~")


def _recorded(connection: BaseDatabaseWrapper) -> set[str] | None:
    """The names of our migrations that are recorded as applied, or None if that is unknown."""
    rows = MigrationRecorder(connection).migration_qs.filter(app=APP_LABEL)
    with suppress(DatabaseError):  # a worker's user may lack the right to read them
        return set(rows.values_list("name", flat=True))
    return None


def _replaces(name: str, applied: set[str]) -> bool:
    """Whether this is a squashed migration whose replaced migrations were all applied."""
    module, _ = MigrationLoader.migrations_module(APP_LABEL)
    replaced = import_module(f"{module}.{name}").Migration.replaces
    return bool(replaced) and all(migration in applied for _, migration in replaced)


@contextmanager
def _left_as_it_is(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Close a connection opened in the block, and its pool: children are forked later."""
    was_open = connection.connection is not None
    try:
        yield
    finally:
        if not was_open and not connection.in_atomic_block:
            with suppress(Error):
                connection.close()
                if connection.settings_dict.get("OPTIONS", {}).get("pool"):
                    connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL's has one
