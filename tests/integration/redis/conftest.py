"""A site whose jobs are in a Redis of the tests' own, and workers for it."""

import pytest
from django.test import override_settings

from django_jobs.backends.registry import backends
from tests.integration.worker.pool.conftest import diary, start  # noqa: F401 - fixtures
from tests.redis_servers import running

WORKER = {"POLL_INTERVAL": 0.2, "LEASE_SECONDS": 3, "TASK_MODULES": ["tests"]}


@pytest.fixture(scope="session")
def server():
    """One server for what does no harm to it."""
    with running() as server:
        yield server


@pytest.fixture
def own_server():
    """A server to be killed, filled and reconfigured."""
    with running() as server:
        yield server


def jobs_in(server, **options):
    url = {"URL": server.url, "TIMEOUT": 2.0, **options}
    path = "django_jobs.backends.redis.RedisBackend"
    return {"BACKENDS": {"redis": {"BACKEND": path, "OPTIONS": url}}, "DEFAULT_BACKEND": "redis"}


@pytest.fixture
def jobs(server):
    """The settings of a site on the common server, in force here and to be given to workers."""
    server.client.flushall()
    settings = jobs_in(server)
    with override_settings(DJANGO_JOBS={**WORKER, **settings}):
        yield settings


@pytest.fixture
def own_jobs(own_server):
    settings = jobs_in(own_server)
    with override_settings(DJANGO_JOBS={**WORKER, **settings}):
        yield settings


@pytest.fixture
def backend(jobs):
    return backends["redis"]
