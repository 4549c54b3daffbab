"""Jobs in the Django database: PostgreSQL, MariaDB and MySQL, SQLite."""

from __future__ import annotations

from django_jobs.backends.database.backend import DatabaseBackend

__all__ = ["DatabaseBackend"]
