"""What is refused before anything runs. That a server is away is no finding."""

import subprocess
import sys

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.redis.checking import _messages
from django_jobs.exceptions import InvalidBackend
from tests.integration.redis.conftest import jobs_in
from tests.redis_servers import Server, running

pytestmark = pytest.mark.needs("redis")
URL = "redis://:secret@127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "has to be an address such as redis://"),
        ({"URL": "http://somewhere"}, "has to be an address such as redis://"),
        ({"URL": URL, "PREFIX": "a}b"}, "'PREFIX'.*'a}b'"),
        ({"URL": URL, "PREFIX": ""}, "'PREFIX'"),
        ({"URL": URL, "CLUSTER": "yes"}, "'CLUSTER'.*'yes'"),
        ({"URL": "unix:///run/redis", "CLUSTER": True}, "no cluster can be reached by a socket"),
        ({"URL": URL, "TIMEOUT": 0}, "'TIMEOUT'.*0"),
        ({"URL": URL, "REMEMBER_SECONDS": -1}, "'REMEMBER_SECONDS'.*-1.*or 0"),
        ({"URL": URL, "CLIENT": []}, "'CLIENT'"),
        ({"URL": URL, "URI": ""}, "did you mean 'URL'"),
    ],
)
def test_options_that_cannot_work_are_refused(options, said):
    with pytest.raises(InvalidBackend, match=said) as refused:
        RedisBackend("redis", options)
    assert "secret" not in str(refused.value)


def ids(server, **options):
    return [str(found.id) for found in RedisBackend("redis", {"URL": server.url}).check()]


def test_a_server_that_drops_keys_is_refused(own_server):
    assert ids(own_server) == []
    own_server.client.config_set("maxmemory-policy", "allkeys-lru")
    assert ids(own_server) == ["django_jobs.E061"]


def test_a_server_that_keeps_nothing_is_warned_of():
    with running("--appendonly", "no") as server:
        assert ids(server) == ["django_jobs.W060"]


def test_a_server_that_is_too_old_is_refused():
    assert [str(one.id) for one in _messages("redis", {"redis_version": "6.2.14"})] == [
        "django_jobs.E060"
    ]
    assert not list(_messages("redis", {"redis_version": "7.0.15"}))


@pytest.mark.django_db(databases=["default", "other"])
def test_the_check_command_needs_no_server(own_server):
    away = Server(port=1)
    with override_settings(DJANGO_JOBS=jobs_in(away)):
        call_command("check")


WITHOUT_IT = """
import sys
sys.modules["redis"] = None
import django
from django.conf import settings
path = "django_jobs.backends.redis.RedisBackend"
backends = {"redis": {"BACKEND": path, "OPTIONS": {"URL": "redis://nowhere"}}}
jobs = {"BACKENDS": backends, "DEFAULT_BACKEND": "redis"}
settings.configure(INSTALLED_APPS=["django_jobs"], DJANGO_JOBS=jobs, SECRET_KEY="x" * 50)
django.setup()
from django_jobs.checks import check_jobs
print([(message.id, message.msg) for message in check_jobs()])
"""


def test_without_the_package_the_check_names_the_extra():
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_IT], capture_output=True, text=True, check=False
    )
    assert "django_jobs.E003" in told.stdout, told.stderr
    assert "install django-jobs[redis]" in told.stdout
