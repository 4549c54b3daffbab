"""Which services answer on this machine. Each is asked once per run.

Tests name what they need (``@pytest.mark.needs("redis")``); where it is comes from the
environment: ``DJANGO_JOBS_REDIS_URL``, ``DJANGO_JOBS_BEANSTALKD`` (host:port),
``DJANGO_JOBS_BROWSER`` and ``DJANGO_JOBS_BROWSER_DRIVER`` (programs) and, for the databases, the
names told in ``testproject/databases.py``.
"""

import functools
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from urllib.parse import urlsplit

from testproject.databases import server_details

REDIS_URL = os.environ.get("DJANGO_JOBS_REDIS_URL", "redis://127.0.0.1:6379/0")
BEANSTALKD = os.environ.get("DJANGO_JOBS_BEANSTALKD", "127.0.0.1:11300")
BROWSER = os.environ.get("DJANGO_JOBS_BROWSER", "chromium")
BROWSER_DRIVER = os.environ.get("DJANGO_JOBS_BROWSER_DRIVER", "chromedriver")
PATIENCE = 2.0


@functools.cache
def why_not(service: str) -> str:
    """Why the service cannot be used, or "" when it can."""
    try:
        version(service)
    except (OSError, ImportError) as error:
        return f"{service} cannot be used: {type(error).__name__}: {error}"
    return ""


@functools.cache
def version(service: str) -> str:
    """What the service says of itself; raises OSError or ImportError."""
    return PROBES[service]()


def _postgres() -> str:
    import psycopg  # noqa: PLC0415 - the driver may be absent, which is an answer too

    details = server_details("postgres")
    try:
        with psycopg.connect(
            host=details["HOST"],
            port=details["PORT"],
            user=details["USER"],
            password=details["PASSWORD"],
            dbname="postgres",
            connect_timeout=int(PATIENCE),
        ) as connection:
            return f"PostgreSQL {connection.execute('SHOW server_version').fetchone()[0]}"
    except psycopg.OperationalError as error:
        raise ConnectionError(str(error).strip()) from error


def _mysql(vendor: str) -> str:
    import pymysql  # noqa: PLC0415 - the driver may be absent, which is an answer too

    details = server_details(vendor)
    try:
        connection = pymysql.connect(
            host=details["HOST"],
            port=int(details["PORT"]),
            user=details["USER"],
            password=details["PASSWORD"],
            connect_timeout=PATIENCE,
        )
    except pymysql.OperationalError as error:
        raise ConnectionError(str(error).strip()) from error
    with connection:
        return f"{vendor} {connection.get_server_info()}"


def _redis() -> str:
    import redis  # noqa: PLC0415, F401 - the driver may be absent, which is an answer too

    address = urlsplit(REDIS_URL)
    return _expect(
        address.hostname or "127.0.0.1", address.port or 6379, b"PING\r\n", (b"+PONG", b"-NOAUTH")
    )


def _beanstalkd() -> str:
    import greenstalk  # noqa: PLC0415, F401 - the driver may be absent, which is an answer too

    host, _, port = BEANSTALKD.rpartition(":")
    return _expect(host, int(port), b"list-tube-used\r\n", (b"USING",))


def _pgbouncer() -> str:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        raise FileNotFoundError("there is no program of that name; tests start it themselves")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return told.stdout.partition("\n")[0]


def _browser() -> str:
    import selenium  # noqa: PLC0415, F401 - may be absent, which is an answer too

    for program in (BROWSER, BROWSER_DRIVER):
        if shutil.which(program) is None:
            raise FileNotFoundError(f"there is no program {program}")
    told = subprocess.run([BROWSER, "--version"], capture_output=True, text=True, check=False)
    return told.stdout.strip()


def _expect(host: str, port: int, question: bytes, answers: tuple[bytes, ...]) -> str:
    with socket.create_connection((host, port), timeout=PATIENCE) as connection:
        connection.sendall(question)
        answer = connection.recv(64)
    if not answer.startswith(answers):
        raise ConnectionError(f"{host}:{port} answered {answer!r}, which is some other service")
    return answer.decode(errors="replace").strip()


PROBES: dict[str, Callable[[], str]] = {
    "postgres": _postgres,
    "mariadb": functools.partial(_mysql, "mariadb"),
    "mysql": functools.partial(_mysql, "mysql"),
    "redis": _redis,
    "beanstalkd": _beanstalkd,
    "pgbouncer": _pgbouncer,
    "browser": _browser,
}
