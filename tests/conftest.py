"""What every test can rely on: honest skips, a header that says what ran, child processes.

A run uses one database, named by ``DJANGO_JOBS_TEST_DB`` (SQLite unless said otherwise).
With ``DJANGO_JOBS_TEST_REQUIRE=all`` a missing service is a failure instead of a skip.
"""

import os
import platform
import sqlite3
from pathlib import Path

import django
import pytest
from django.db import connections

from testproject.databases import CHOICES
from tests import services

ROOT = Path(__file__).resolve().parent.parent
RUN_ON = os.environ.get("DJANGO_JOBS_TEST_DB") or "sqlite"
SQLITE = f"SQLite {sqlite3.sqlite_version}"


def pytest_sessionstart() -> None:
    """Without the database that was asked for there is nothing to test, and one error says so."""
    if RUN_ON in services.PROBES and (reason := services.why_not(RUN_ON)):
        raise pytest.UsageError(f"DJANGO_JOBS_TEST_DB={RUN_ON}, but {reason}")


def pytest_report_header() -> str:
    database = services.version(RUN_ON) if RUN_ON in services.PROBES else SQLITE
    return (
        f"django_jobs: {database}, Django {django.get_version()}, "
        f"Python {platform.python_version()}"
    )


# Crowds of processes, faults that take their time, fuzzing: minutes, where the rest takes seconds.
LONG = (
    "tests/acceptance/test_readme.py",
    "tests/browser",
    "tests/conformance/test_broken.py",
    "tests/fuzz",
    "tests/integration/cron/test_admin_hostile.py",
    "tests/integration/cron/test_broker.py",
    "tests/integration/cron/test_crowd.py",
    "tests/integration/cron/test_jobs_cron_processes.py",
    "tests/integration/cron/test_loop.py",
    "tests/integration/cron/test_outages.py",
    "tests/integration/commands/test_missing_migrations.py",
    "tests/integration/guards",
    "tests/integration/outbox/test_killed.py",
    "tests/integration/outbox/test_workers.py",
    "tests/integration/redis",
    "tests/integration/test_admin_addresses.py",
    "tests/integration/test_admin_hostile",
    "tests/integration/test_claims.py",
    "tests/integration/test_separate_database.py",
    "tests/integration/tasks/test_worker.py",
    "tests/integration/worker/pool",
    "tests/integration/worker/test_reload.py",
    "tests/unit/cron/test_daylight_everywhere.py",
    "tests/unit/cron/test_expression_days.py",
)
# What a pool is for; one process alone.
NOT_LONG = (
    *("test_pool.py", "test_breakers.py", "test_forgotten.py", "test_meters.py"),
    *("test_redis_breakers.py", "test_left_behind.py"),
)
# Of those the ones about a worker's processes, how they stop, freeze, die and are replaced: they
# say little about what holds the jobs.
PROCESSES = (
    "tests/integration/cron/test_jobs_cron_processes.py",
    "tests/integration/cron/test_loop.py",
    "tests/integration/tasks/test_worker.py",
    "tests/integration/worker/test_reload.py",
    *(
        f"tests/integration/worker/pool/test_{name}.py"
        for name in (
            "asked", "concurrency", "controls", "deploys", "exit_hooks", "forking", "garbage",
            "killing", "lifecycle", "odd_ends", "programs", "rate_limits", "recycling",
            "signals", "silence", "spawnserver", "stopping", "suspects", "wreckage", "zombies",
        )
    ),
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        if path.startswith(LONG) and item.path.name not in NOT_LONG:
            item.add_marker(pytest.mark.long)
        if path in PROCESSES:
            item.add_marker(pytest.mark.processes)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a service or database that nobody knows, before it becomes an eternal skip."""
    for marker, known in (("needs", tuple(services.PROBES)), ("only_on", CHOICES)):
        for mark in item.iter_markers(marker):
            for name in mark.args or ("",):
                if name not in known:
                    raise pytest.UsageError(
                        f"{item.nodeid}: {marker}({name!r}) is unknown; there is {', '.join(known)}"
                    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("only_on"):
        if RUN_ON not in mark.args:
            pytest.skip(f"only on {' and '.join(mark.args)}: this run is on {RUN_ON}")
    for mark in item.iter_markers("needs"):
        for service in mark.args:
            if reason := services.why_not(service):
                if os.environ.get("DJANGO_JOBS_TEST_REQUIRE") == "all":
                    pytest.fail(f"{reason} (and DJANGO_JOBS_TEST_REQUIRE=all)", pytrace=False)
                pytest.skip(reason)


@pytest.fixture
def site_environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment in which another process sees this test's databases.

    For tests that commit: what an open transaction holds, no other process can see.
    """
    request.getfixturevalue("transactional_db")
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "DJANGO_JOBS_TEST_DB": RUN_ON,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    name = str(connections["default"].settings_dict["NAME"])
    if RUN_ON == "sqlite":
        return {**environment, "DJANGO_JOBS_SQLITE_PATH": name}
    return {**environment, f"DJANGO_JOBS_{RUN_ON.upper()}_NAME": name}
