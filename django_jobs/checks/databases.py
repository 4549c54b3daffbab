"""Checks of the databases that carry jobs. They read settings and open no connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.checks import Error, Warning  # noqa: A004 - Django's name for it
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from django_jobs.conf.model import nearest
from django_jobs.routers import (
    APP_LABEL,
    database_of,
    job_databases,
    outbox_database,
    shipped_parent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.checks import CheckMessage
    from django.db.backends.base.base import BaseDatabaseWrapper

    from django_jobs.conf import JobsSettings, Problem

SUPPORTED = ("postgresql", "mysql", "sqlite")
LOCKING = ("IMMEDIATE", "EXCLUSIVE")


def check_aliases(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """OPTIONS['DATABASE'] is one of DATABASES."""
    for config in settings.backends.values():
        alias = database_of(config)
        if alias is not None and alias not in connections.settings:
            yield Error(
                f"BACKENDS[{config.alias!r}]['OPTIONS']['DATABASE'] is {alias!r}, which is "
                f"not in DATABASES{nearest(alias, connections.settings)}.",
                hint="Name one of the aliases in DATABASES, or add the database there.",
                id="django_jobs.E007",
            )


def check_outboxes(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """OUTBOX and ON_COMMIT name databases that exist, and have an effect."""
    for config in settings.backends.values():
        aliases = {"OUTBOX": config.outbox, "ON_COMMIT": config.on_commit}
        for key, alias in aliases.items():
            if isinstance(alias, str) and alias not in connections.settings:
                yield Error(
                    f"BACKENDS[{config.alias!r}][{key!r}] is {alias!r}, which is not in "
                    f"DATABASES{nearest(alias, connections.settings)}.",
                    hint="Name one of the aliases in DATABASES, or write True.",
                    id="django_jobs.E070",
                )
        queues = [name for name in settings.queues if settings.backend_for(name) == config.alias]
        wanted = config.outbox or any(settings.queue(name).outbox for name in queues)
        if wanted and outbox_database(settings, config.alias) is None:
            yield Warning(
                f"The backend {config.alias!r} keeps its jobs in the database that its outbox "
                "would be in: an enqueue joins your transaction there, and OUTBOX is not used.",
                hint="Remove OUTBOX; or name the database of your own rows if it is another.",
                id="django_jobs.W070",
            )


def check_shared_tables(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """No two backends share a table, where claims would read past each other's jobs."""
    seen: dict[tuple[str, ...], str] = {}
    for config in settings.backends.values():
        alias = database_of(config)
        # A sync backend claims only its own jobs, by id.
        if (
            alias is None
            or alias not in connections.settings
            or shipped_parent(config.path) == "sync"
        ):
            continue
        database = connections.settings[alias]
        where = tuple(str(database.get(name) or "") for name in ("ENGINE", "NAME", "HOST", "PORT"))
        first = seen.setdefault(where, config.alias)
        if first != config.alias:
            yield Warning(
                f"The backends {first!r} and {config.alias!r} keep their jobs in one table: if "
                "both have a queue of the same name, each claim of one reads past all jobs of the "
                "other.",
                hint="Keep one of them, and give each kind of work a queue of its own; or name "
                "another database in OPTIONS['DATABASE'].",
                id="django_jobs.W014",
            )


def check_vendors(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Claiming is written and tested for these databases only."""
    for alias, connection in _connections(settings):
        if connection.vendor not in SUPPORTED:
            yield Error(
                f"DATABASES[{alias!r}] is {connection.display_name}, which cannot carry jobs.",
                hint="Keep jobs in PostgreSQL, MariaDB, MySQL or SQLite (OPTIONS['DATABASE']), or "
                "use another backend.",
                id="django_jobs.E008",
            )


def check_routes(settings: JobsSettings, problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """The admin and ``migrate`` use the database where the backend has its tables."""
    aliases = job_databases(settings)
    # The router reads the settings too, and would raise what is already reported.
    if problems or not all(alias in connections.settings for alias in aliases):
        return
    models = list(apps.get_app_config(APP_LABEL).get_models())
    used = {router.db_for_read(model) for model in models}
    used |= {router.db_for_write(model) for model in models}
    if strays := sorted(used - {aliases[0]}):
        yield _misrouted(f"are read or written in {', '.join(map(repr, strays))}", aliases[0])
    for alias in aliases:
        if not all(router.allow_migrate_model(alias, model) for model in models):
            yield _misrouted("may not be migrated there", alias)


def _misrouted(where: str, alias: str) -> CheckMessage:
    return Warning(
        f"The database {alias!r} carries jobs, but DATABASE_ROUTERS decides that the models of "
        f"django_jobs {where}.",
        hint='Put "django_jobs.routers.JobsRouter" first in DATABASE_ROUTERS.',
        id="django_jobs.W007",
    )


def check_sqlite(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """SQLite serves several processes only as a file and with immediate locks."""
    for alias, connection in _connections(settings, "sqlite"):
        if _is_in_memory(connection):
            yield Warning(
                f"DATABASES[{alias!r}] is an SQLite database in memory: no other process can "
                "see its jobs.",
                hint="Name a file. In a test it is fine: a worker runs in the process of the test.",
                id="django_jobs.W008",
            )
        elif str(_options(connection).get("transaction_mode", "")).upper() not in LOCKING:
            yield Warning(
                f"DATABASES[{alias!r}] begins SQLite transactions deferred: an enqueue in a "
                'transaction that has read before can fail at once with "database is locked".',
                hint=f"Write DATABASES[{alias!r}]['OPTIONS'] = "
                '{"transaction_mode": "IMMEDIATE", "timeout": 20}.',
                id="django_jobs.W010",
            )


def check_isolation(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Repeatable read takes gap locks, on which claims of several workers deadlock."""
    for alias, connection in _connections(settings, "mysql"):
        level = _options(connection).get("isolation_level", "read committed")
        if str(level).lower() != "read committed":
            level_text = "the server's own" if level is None else repr(level)
            yield Warning(
                f"DATABASES[{alias!r}]['OPTIONS']['isolation_level'] is {level_text}: workers will "
                "wait for each other's locks, and deadlock.",
                hint="Remove isolation_level; Django's default is 'read committed'.",
                id="django_jobs.W009",
            )


def check_snapshots(settings: JobsSettings, _problems: Sequence[Problem]) -> Iterator[CheckMessage]:
    """Stricter levels of PostgreSQL see only what was committed before the transaction began."""
    for alias, connection in _connections(settings, "postgresql"):
        if level := _strict_level(_options(connection)):
            yield Warning(
                f"DATABASES[{alias!r}]['OPTIONS'] makes transactions {level}: in yours, unique "
                "keys are checked against an old snapshot, and an enqueue can fail because another "
                "process enqueues at the same time.",
                hint="Remove the level: PostgreSQL's default is READ COMMITTED. If your code needs "
                "the stricter one, add a separate entry in DATABASES for jobs.",
                id="django_jobs.W011",
            )


def _strict_level(options: dict[str, object]) -> str:
    """REPEATABLE READ or SERIALIZABLE if these options set it, or an empty text."""
    from django.db.backends.postgresql.psycopg_any import (  # noqa: PLC0415 - needs the driver
        IsolationLevel,
    )

    text = str(options.get("options", "")).lower()
    if "default_transaction_isolation" in text:
        for word in ("repeatable", "serializable"):
            if word in text:
                return "REPEATABLE READ" if word == "repeatable" else "SERIALIZABLE"
    asked: Any = options.get("isolation_level")
    try:
        name = IsolationLevel(asked).name
    except ValueError:  # none is set; Django itself refuses an unknown one
        return ""
    return name.replace("_", " ") if name in {"REPEATABLE_READ", "SERIALIZABLE"} else ""


def check_autocommit(
    settings: JobsSettings, _problems: Sequence[Problem]
) -> Iterator[CheckMessage]:
    """Single statements rely on autocommit; nothing else would commit them."""
    for alias, connection in _connections(settings):
        if not connection.settings_dict.get("AUTOCOMMIT", True):
            yield Error(
                f"DATABASES[{alias!r}]['AUTOCOMMIT'] is False: what workers write is never "
                "committed, and every job would run again and again.",
                hint="Remove AUTOCOMMIT, or keep jobs in another entry of DATABASES.",
                id="django_jobs.E019",
            )


def _connections(
    settings: JobsSettings, vendor: str = ""
) -> Iterator[tuple[str, BaseDatabaseWrapper]]:
    outboxes = [outbox_database(settings, alias) for alias in settings.backends]
    carriers = map(database_of, settings.backends.values())
    for alias in dict.fromkeys([*carriers, *outboxes]):
        if alias is None or alias not in connections.settings:
            continue
        try:
            connection = connections[alias]
        except ImproperlyConfigured:
            continue  # a driver is missing; Django says so itself
        if not vendor or connection.vendor == vendor:
            yield alias, connection


def _options(connection: BaseDatabaseWrapper) -> dict[str, object]:
    return connection.settings_dict.get("OPTIONS") or {}


def _is_in_memory(connection: BaseDatabaseWrapper) -> bool:
    name = str(connection.settings_dict["NAME"])
    return name in {"", ":memory:"} or "mode=memory" in name


DATABASE_CHECKS = (
    check_aliases,
    check_outboxes,
    check_shared_tables,
    check_vendors,
    check_routes,
    check_sqlite,
    check_isolation,
    check_snapshots,
    check_autocommit,
)
