"""A clear error where the tables of django_jobs are missing."""

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
    """Raise TablesMissing for the error of a database that lacks our tables or columns.

    ``database``: its alias, if it is not the database of the backend.
    """
    try:
        yield
    except Error as error:
        # Imported here: this module may be imported before the apps are loaded.
        from django_jobs.db.transactions import is_schema_missing  # noqa: PLC0415 - see above

        if isinstance(error, TablesMissing) or not is_schema_missing(error):
            raise
        settings = get_settings()
        home = database or database_of(settings.backends[backend]) or job_databases(settings)[0]
        raise TablesMissing(home, str(error).strip()) from error
