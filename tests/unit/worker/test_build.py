"""Which backends' messages may be run unverified, where the settings ask for it."""

from dataclasses import replace

import pytest

from django_jobs.backends.database import DatabaseBackend
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.sync import SyncBackend
from django_jobs.conf import get_settings
from django_jobs.worker.build import build_opener
from tests.unit.backends_of_tests import OwnBroker, OwnMemory

REDIS = {"URL": "redis://nowhere"}


@pytest.mark.parametrize(
    ("carrier", "options", "verifies"),
    [
        (RedisBackend, REDIS, True),
        (OwnBroker, {}, True),
        (DatabaseBackend, {}, False),
        (SyncBackend, {}, False),
        (OwnMemory, {}, False),
    ],
)
def test_only_a_store_of_the_sites_own_may_go_unverified(carrier, options, verifies):
    unverified = replace(get_settings(), verify_signatures=False)
    opener = build_opener(carrier("jobs", options), unverified)
    assert (opener.backend, opener.verify_signatures) == ("jobs", verifies)


@pytest.mark.parametrize("carrier", [OwnBroker, DatabaseBackend])
def test_every_message_is_verified_unless_the_settings_say_otherwise(carrier):
    assert build_opener(carrier("jobs", {}), get_settings()).verify_signatures
