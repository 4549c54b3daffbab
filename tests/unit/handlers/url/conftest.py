"""What the tests of the handler ``url`` share: a canary, an authority, and a way to call."""

import time

import pytest

from django_jobs.handlers.base import JobContext
from django_jobs.handlers.url import UrlHandler
from tests.unit.handlers.url.certificates import Authority
from tests.unit.handlers.url.servers import Canary

LOOPBACK = "127.0.0.1/32"


@pytest.fixture
def canary():
    bird = Canary()
    yield bird
    bird.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def allow(settings):
    """Sets ALLOWED_URLS: of one entry, given as its URL and further keys, or of several."""

    def set_entries(*entries, **keys):
        entries = entries or ("http://any.test:1/",)
        settings.DJANGO_JOBS = {
            "ALLOWED_URLS": [{"URL": entry, **keys} if keys else entry for entry in entries]
        }

    return set_entries


@pytest.fixture
def call():
    """Runs one job of the handler, with names that lead to this machine."""

    def run(url, method="GET", *, resolve=lambda _name: ["127.0.0.1"], timeout=None, **more):
        payload = {"method": method, "url": url, **more}
        times = timeout and {"timeout": timeout, "ends_at": time.monotonic() + timeout}
        context = JobContext(id="", payload=payload, name="url", queue="hooks", **(times or {}))
        return UrlHandler(resolve).handle(context)

    return run
