"""What is raised to who enqueues or asks where the tables of django_jobs are missing."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import Error

from django_jobs.conf import get_settings
from django_jobs.exceptions import TablesMissing
from django_jobs.routers import database_of, job_databases

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def naming_missing_tables(backend: str, database: str | None = None) -> Iterator[None]:
    """Raise TablesMissing for what a database says that lacks tables or columns of ours.

    ``database``: which one is asked, if it is not that of the backend.
    """
    try:
        yield
    except Error as error:
        # Looked up here: who enqueues may be imported before the apps are loaded.
        from django_jobs.db.transactions import is_schema_missing  # noqa: PLC0415 - see above

        if isinstance(error, TablesMissing) or not is_schema_missing(error):
            raise
        settings = get_settings()
        home = database or database_of(settings.backends[backend]) or job_databases(settings)[0]
        raise TablesMissing(home, str(error).strip()) from error
