"""The run's database on a server of its own, which the tests may freeze and kill."""

from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections

from tests.chaos.servers import SERVERS
from tests.conftest import RUN_ON
from tests.integration.worker.pool.conftest import diary, start

__all__ = ["diary", "start"]


def pytest_collection_modifyitems(items):
    """One run has one server, and the other tests are not to be run on one that is killed."""
    here = Path(__file__).parent
    if any(item.path.is_relative_to(here) for item in items) and not all(
        item.path.is_relative_to(here) for item in items
    ):
        raise pytest.UsageError("tests/chaos brings a server of its own: run it alone")


@pytest.fixture(scope="session")
def own_server():
    if RUN_ON not in SERVERS:
        pytest.skip(f"only on {' and '.join(SERVERS)}: this run is on {RUN_ON}")
    server = SERVERS[RUN_ON]()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(own_server):
    """Before the test databases are made: make them on our server."""
    for alias in settings.DATABASES:
        settings.DATABASES[alias]["PORT"] = str(own_server.port)
        settings.DATABASES[alias]["HOST"] = "127.0.0.1"
        connections[alias].settings_dict["PORT"] = str(own_server.port)


@pytest.fixture
def server(own_server):
    """It runs before each test, and after it again, whatever a test did to it."""
    own_server.thaw()
    yield own_server
    own_server.thaw()


@pytest.fixture
def site_environment(site_environment, own_server):
    """Workers are to find our server too."""
    assert connections["default"].settings_dict["PORT"] == str(own_server.port)
    prefix = f"DJANGO_JOBS_{RUN_ON.upper()}"
    return {
        **site_environment,
        f"{prefix}_HOST": "127.0.0.1",
        f"{prefix}_PORT": str(own_server.port),
    }
