"""Who is logged in."""

import uuid

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client


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
