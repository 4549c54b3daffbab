"""The databases this project can run on; ``DJANGO_JOBS_TEST_DB`` names one of them.

Every choice gives two aliases of the same vendor, ``default`` and ``other``, so that code which
forgets to name its alias is noticed. The environment tells how to connect:

- ``DJANGO_JOBS_SQLITE_PATH``: the SQLite file; the file of ``other`` lies beside it.
- ``DJANGO_JOBS_POSTGRES_HOST``, ``_PORT``, ``_USER``, ``_PASSWORD``, ``_NAME``, and the same with
  ``MARIADB`` and ``MYSQL``.
- ``DJANGO_JOBS_TEST_SUFFIX``: ends the names of the test databases. Two runs of the suite at the
  same time on one server need two suffixes.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

CHOICES = ("sqlite", "postgres", "mariadb", "mysql")
SERVER_DEFAULTS = {
    "postgres": {"HOST": "127.0.0.1", "PORT": "5432", "USER": "postgres", "PASSWORD": ""},
    "mariadb": {"HOST": "127.0.0.1", "PORT": "3306", "USER": "root", "PASSWORD": ""},
    "mysql": {"HOST": "127.0.0.1", "PORT": "3306", "USER": "root", "PASSWORD": ""},
}
MYSQL_CLIENT_DJANGO_WANTS = (2, 2, 1)


def server_details(vendor: str) -> dict[str, str]:
    """Host, port, user, password and database name of a server, from the environment."""
    prefix = f"DJANGO_JOBS_{vendor.upper()}_"
    details = {
        key: os.environ.get(prefix + key, default)
        for key, default in SERVER_DEFAULTS[vendor].items()
    }
    return {**details, "NAME": os.environ.get(prefix + "NAME", "django_jobs")}


def databases(choice: str) -> dict[str, dict[str, Any]]:
    """Django's ``DATABASES`` for one of ``CHOICES``."""
    if choice not in CHOICES:
        raise ValueError(f"DJANGO_JOBS_TEST_DB={choice!r} is unknown. Use one of {CHOICES}.")
    if choice == "sqlite":
        path = Path(os.environ.get("DJANGO_JOBS_SQLITE_PATH") or _default_sqlite_path())
        return {"default": _sqlite(path), "other": _sqlite(_beside(path))}
    if choice in ("mariadb", "mysql"):
        _use_pymysql()
    details = server_details(choice)
    return {"default": _server(choice, details, ""), "other": _server(choice, details, "_other")}


def _default_sqlite_path() -> Path:
    return Path(__file__).resolve().with_name("db.sqlite3")


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}_other{path.suffix}")


def _sqlite(path: Path) -> dict[str, Any]:
    # A file also under test: other processes must be able to open the same database.
    run = os.environ.get("DJANGO_JOBS_TEST_SUFFIX") or str(os.getpid())
    test_file = Path(tempfile.gettempdir()) / f"test_django_jobs_{run}.sqlite3"
    if path.stem.endswith("_other"):
        test_file = _beside(test_file)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode=WAL",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
        "TEST": {"NAME": str(test_file)},
    }


def _server(choice: str, details: dict[str, str], ending: str) -> dict[str, Any]:
    run = os.environ.get("DJANGO_JOBS_TEST_SUFFIX", "")
    test: dict[str, Any] = {"NAME": f"test_{details['NAME']}{run and '_' + run}{ending}"}
    details = {**details, "NAME": details["NAME"] + ending}
    if choice == "postgres":
        return {"ENGINE": "django.db.backends.postgresql", **details, "TEST": test}
    return {
        "ENGINE": "django.db.backends.mysql",
        **details,
        "OPTIONS": {"charset": "utf8mb4"},
        "TEST": {**test, "CHARSET": "utf8mb4"},
    }


def _use_pymysql() -> None:
    """Let the pure-Python driver stand in for mysqlclient, which needs a compiler."""
    import pymysql  # noqa: PLC0415 - only these two choices need the driver

    if pymysql.version_info[:3] < MYSQL_CLIENT_DJANGO_WANTS:
        pymysql.version_info = (*MYSQL_CLIENT_DJANGO_WANTS, "final", 0)
    pymysql.install_as_MySQLdb()
