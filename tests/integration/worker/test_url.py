"""The handler ``url`` from enqueue to result, with a server of this machine."""

import pytest

from django_jobs import define
from django_jobs.exceptions import HandlerRefused, JobFailed, UrlRefused
from django_jobs.models import FailedJob
from django_jobs.worker import process_once
from tests.unit.handlers.url.servers import OK, Server

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(settings):
    with Server() as running:
        settings.DJANGO_JOBS = {
            "QUEUES": {"hooks": {"HANDLERS": ["url"]}, "default": {}},
            "ALLOWED_URLS": [
                {"URL": f"http://127.0.0.1:{running.port}/hooks/*", "PRIVATE": ["127.0.0.1/32"]}
            ],
        }
        yield running


def hook(server, path="/hooks/1", **options):
    url = f"http://127.0.0.1:{server.port}{path}"
    payload = {"method": "POST", "url": url, "body": {"id": 1}}
    return define("url", payload, **{"queue": "hooks", **options})


def test_an_allowed_call_is_made_and_its_answer_is_the_result(server):
    handle = hook(server).enqueue()
    process_once("hooks")
    assert handle.result() == {"status": 200, "body": "ok", "truncated": False}
    assert [body for _, body in server.requests] == [b'{"id":1}']


def test_a_queue_that_does_not_name_it_takes_no_call(server):
    with pytest.raises(HandlerRefused):
        hook(server, queue="default").enqueue()


def test_an_address_that_is_not_allowed_is_refused_at_once(server):
    with pytest.raises(UrlRefused):
        hook(server, "/other").enqueue()


def test_what_is_no_longer_allowed_when_it_runs_is_not_called_and_not_retried(server, settings):
    handle = hook(server, max_retries=3, retry="none").enqueue()
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ALLOWED_URLS": []}
    process_once("hooks")
    assert server.requests == []
    assert handle.status == "dead"


def test_a_name_that_leads_inside_is_not_called_and_not_retried(server, settings):
    url = f"http://localhost:{server.port}/"
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "ALLOWED_URLS": [f"{url}*"]}
    handle = define("url", {"url": url}, queue="hooks", max_retries=3, retry="none").enqueue()
    process_once("hooks")
    assert server.requests == []
    dead = FailedJob.objects.get(job_id=handle.id)
    assert (dead.reason, dead.error_type) == ("not-retryable", "django_jobs.exceptions.UrlRefused")
    assert "127.0.0.1" not in f"{dead.error_message}{dead.traceback}"
    assert "::1" not in f"{dead.error_message}{dead.traceback}"


def test_a_failure_is_retried_and_its_answer_is_in_the_output(server):
    server.script = b'HTTP/1.1 503 Busy\r\nContent-Length: 15\r\n\r\n{"secret": "s"}'
    handle = hook(server, max_retries=1, retry="none").enqueue()
    process_once("hooks")
    assert handle.status == "ready"
    process_once("hooks")
    assert len(server.requests) == 2
    dead = FailedJob.objects.get(job_id=handle.id)
    assert dead.error_message == f"http://127.0.0.1:{server.port} answered 503"
    assert dead.output.splitlines() == ["503", '{"secret": ••••}']
    with pytest.raises(JobFailed):
        handle.result()


def test_a_failure_is_followed_by_success(server):
    server.script = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    handle = hook(server, max_retries=1, retry="none").enqueue()
    process_once("hooks")
    server.script = OK
    process_once("hooks")
    assert handle.result()["status"] == 200
