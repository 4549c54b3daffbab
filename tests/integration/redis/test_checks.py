"""What is refused before anything runs. That a server is away is no finding."""

import ssl
import subprocess
import sys

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.redis.checks import _messages
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


TLS = URL.replace("redis:", "rediss:")


@pytest.mark.parametrize(
    ("url", "client", "named"),
    [
        (TLS, {}, None),
        (TLS, {"ssl_check_hostname": True, "ssl_cert_reqs": "required"}, None),
        (TLS, {"ssl_check_hostname": False}, "ssl_check_hostname is False"),
        (f"{TLS}?ssl_check_hostname=false", {}, "ssl_check_hostname is False"),
        (f"{TLS}?ssl_check_hostname=true", {"ssl_check_hostname": False}, None),
        (TLS, {"ssl_cert_reqs": "none", "ssl_check_hostname": False}, "ssl_cert_reqs is 'none'"),
        (TLS, {"ssl_cert_reqs": None}, "ssl_cert_reqs is None"),
        (TLS, {"ssl_cert_reqs": ssl.CERT_NONE}, "ssl_cert_reqs is"),
        (URL, {"ssl_check_hostname": False}, None),
    ],
)
def test_a_server_that_need_not_prove_its_name_is_warned_of(url, client, named):
    found = RedisBackend("redis", {"URL": url, "CLIENT": client}).check()
    assert [str(one.id) for one in found] == (["django_jobs.W015"] if named else [])
    if named:
        assert named in found[0].msg
        assert "secret" not in found[0].msg


OLD_CLIENT = """
import redis
redis.__version__ = "5.2.1"
try:
    import django_jobs.backends.redis.connection
except ImportError as error:
    print(error)
"""


def test_a_client_that_does_not_check_names_is_refused():
    asked = [sys.executable, "-c", OLD_CLIENT]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert "redis-py 6 or newer, and 5.2.1 is installed" in told
    assert "django-durable-jobs[redis]" in told


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
    assert "install django-durable-jobs[redis]" in told.stdout
