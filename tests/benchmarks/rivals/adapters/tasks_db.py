"""django-tasks-db, the database backend of the author of Django's Tasks."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.rivals.adapters.djangos_tasks import TasksSite
from tests.benchmarks.rivals.site import (
    CORES,
    DEFAULTS,
    MACHINE,
    ONE,
    POSTGRES,
    SQLITE,
    Way,
)

WORKER = ("django", "db_worker")
TUNED = (*WORKER, "-v0", "--no-startup-delay")


class TasksDbSite(TasksSite):
    """On PostgreSQL. A worker is one process and runs one task at a time."""

    name = "django-tasks-db"
    vendor = POSTGRES
    distribution = "django-tasks-db"
    keeps = "two commits a task; killed work stays RUNNING for ever"
    model = "django_tasks_database.DBTaskResult"
    left = "SELECT count(*) FROM django_tasks_database_dbtaskresult WHERE status <> 'SUCCESSFUL'"
    bulk = False
    apps = ("django_tasks_db",)
    ways = (
        Way(DEFAULTS, (WORKER,), "a new connection per task", 100, reconnects=True),
        Way(ONE, (TUNED,), "-v0, CONN_MAX_AGE None", 450),
        Way(MACHINE, (TUNED,) * CORES, f"{CORES} workers, -v0, CONN_MAX_AGE None", 500),
    )

    def extra(self) -> dict[str, Any]:
        return {"TASKS": {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}}


class TasksDbSqliteSite(TasksDbSite):
    """On SQLite."""

    vendor = SQLITE
    ways = (
        Way(DEFAULTS, (WORKER,), "a new connection per task", 500),
        Way(ONE, (TUNED,), "-v0, CONN_MAX_AGE None", 1_000),
        Way(MACHINE, (TUNED,) * CORES, f"{CORES} workers, -v0, CONN_MAX_AGE None", 1_000),
    )
