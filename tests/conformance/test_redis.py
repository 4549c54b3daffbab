"""The Redis backend keeps the contract, on a real server."""

import pytest
from django.test import TestCase

from django_jobs.testing.conformance import BackendConformance
from tests.conformance.redis_hooks import RedisHooks

pytestmark = pytest.mark.needs("redis")


class TestRedisBackend(RedisHooks, BackendConformance, TestCase):
    pass
