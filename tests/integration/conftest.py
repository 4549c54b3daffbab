"""Who is logged in, and a store whose clock is moved by hand."""

import uuid

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from django_jobs.backends.database.backend import DatabaseBackend
from django_jobs.clock import ManualClock
from django_jobs.db.clock import StoreClock
from django_jobs.operations.gauges import store_gauges


@pytest.fixture
def someone():
    """A member of staff with these permissions and no others, logged in."""

    def log_in(*codenames):
        user = User.objects.create_user(f"user-{uuid.uuid4().hex[:8]}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        assert user.user_permissions.count() == len(codenames)
        client = Client()
        client.force_login(user)
        return client

    return log_in


@pytest.fixture(autouse=True)
def no_gauges_of_the_test_before():
    store_gauges.forget()


@pytest.fixture
def by_the_table():
    """Rows come as they lie in the table, where no order is asked for."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for way in ("indexscan", "indexonlyscan", "bitmapscan"):
                cursor.execute(f"SET LOCAL enable_{way} = off")


@pytest.fixture
def manual():
    return ManualClock()


@pytest.fixture
def backend(manual):
    """A backend on the database, by that clock."""
    backend = DatabaseBackend("database", {})
    backend.clock = StoreClock(manual)
    return backend
