"""The rules of docs/howto/use-redis.md for a user of its own are enough; TLS; memory."""

import re
import shutil
import subprocess
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from django.test import TestCase
from redis.exceptions import NoPermissionError

from django_jobs import enqueue_many, job
from django_jobs.backends.base import Settled
from django_jobs.backends.redis import RedisBackend
from django_jobs.backends.registry import backends
from django_jobs.testing.conformance import BackendConformance
from django_jobs.testing.factories import make_outgoing
from tests.conformance.redis_hooks import RedisHooks
from tests.redis_servers import free_port, running

pytestmark = pytest.mark.needs("redis")
PAGE = Path(__file__).parents[3] / "docs" / "howto" / "use-redis.md"
MOST_BYTES = 1024
MANY = 20_000


def documented_rules():
    rules = re.search(r"ACL SETUSER jobs (.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return rules[1].replace("\\\n", " ").split()


@pytest.fixture(scope="class")
def limited(request):
    with running() as server:
        server.client.execute_command("ACL", "SETUSER", "jobs", *documented_rules())
        url = server.url.replace("//", "//jobs:choose-a-long-one@")
        request.cls.options = {"URL": url}
        request.cls.server = server
        yield server


@pytest.mark.usefixtures("limited")
class TestRedisBackendWithTheDocumentedRules(RedisHooks, BackendConformance, TestCase):
    def administrator(self, backend):
        self.server.client.flushall()
        self.options = {"PREFIX": "django_jobs", **self.options}
        return self.server.client

    def test_the_user_may_do_nothing_else(self):
        client = self.backend.store.connection.client
        for command in (
            ["FLUSHALL"],
            ["CONFIG", "GET", "*"],
            ["KEYS", "*"],
            ["GET", "somebody's"],
            ["DEL", "somebody's"],
            ["EVAL", "return redis.call('GET', KEYS[1])", "1", "somebody's"],
        ):
            with pytest.raises(NoPermissionError):
                client.execute_command(*command)

    def test_the_user_may_ask_running_jobs_to_stop(self):
        job_id = self.put()
        lease = self.take()
        assert self.backend.ask_to_stop(job_id)
        assert self.backend.asked_to_stop([lease]) == {job_id}

    def test_the_checks_find_nothing_amiss(self):
        assert self.backend.check() == []


@job(key="tests.nothing")
def nothing():
    """As small as a job gets."""


@pytest.mark.django_db
def test_a_waiting_job_takes_less_than_a_kilobyte(jobs):
    client = backends["redis"].store.connection.client
    nothing.enqueue()
    before = client.info("memory")["used_memory"]
    enqueue_many([nothing.prepare() for _ in range(MANY)])
    each = (client.info("memory")["used_memory"] - before) / MANY
    print(f"{each:.0f} bytes for each waiting job")
    assert each < MOST_BYTES


@pytest.fixture
def by_tls(tmp_path):
    """Starts servers that speak TLS under a certificate of some names, which signs itself."""
    if shutil.which("openssl") is None:
        pytest.fail("openssl is needed to make a certificate")

    @contextmanager
    def serving(names):
        key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
        subprocess.run(
            [
                *[
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    "/CN=jobs",
                ],
                *("-addext", f"subjectAltName={names}", "-keyout", key, "-out", certificate),
            ],
            check=True,
            capture_output=True,
        )
        port = free_port()
        files = ["--tls-cert-file", certificate, "--tls-key-file", key]
        options = ["--tls-port", str(port), *files, "--tls-auth-clients", "no"]
        with running(*options, "--tls-ca-cert-file", certificate):
            yield f"rediss://127.0.0.1:{port}/0", {"ssl_ca_certs": certificate}

    return serving


def test_a_connection_by_tls(by_tls):
    with by_tls("DNS:localhost,IP:127.0.0.1") as (url, trust):
        trusting = RedisBackend("redis", {"URL": url, "CLIENT": trust})
        # Closed by hand: as garbage, its socket may be met before what would close it.
        with closing(trusting.store.connection.client):
            assert trusting.stats("default").ready == 0
        with pytest.raises(ConnectionError, match=r"(?i)certificate"):
            RedisBackend("redis", {"URL": url}).stats("default")


@pytest.mark.parametrize("cluster", [False, True])
def test_a_server_whose_certificate_is_of_another_name_is_not_talked_to(by_tls, cluster):
    with by_tls("DNS:another.example,IP:192.0.2.1") as (url, trust):
        refused = RedisBackend("redis", {"URL": url, "CLIENT": trust, "CLUSTER": cluster})
        with pytest.raises(ConnectionError, match=r"(?i)certificate"):
            refused.stats("default")


def test_a_site_may_do_without_the_name_knowingly(by_tls):
    with by_tls("DNS:another.example") as (url, trust):
        client = {**trust, "ssl_check_hostname": False}
        knowing = RedisBackend("redis", {"URL": url, "CLIENT": client})
        with closing(knowing.store.connection.client):
            assert knowing.stats("default").ready == 0
        assert [str(found.id) for found in knowing.check()] == ["django_jobs.W015"]


@pytest.mark.django_db
def test_a_connection_by_a_socket_of_the_machine(tmp_path):
    path = tmp_path / "redis.sock"
    with running("--unixsocket", str(path)):
        backend = RedisBackend("redis", {"URL": f"unix://{path}?db=1"})
        message = make_outgoing(backend="redis")
        backend.enqueue([message])
        assert backend.wait(["default"], 5.0)
        (lease,) = backend.fetch(["default"], 1, 30.0)
        assert (lease.id, backend.ack([lease])) == (message.id, [Settled.SETTLED])
        assert not backend.wait(["default"], 0.05)
        assert backend.check() == []
