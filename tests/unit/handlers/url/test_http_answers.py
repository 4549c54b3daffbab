"""Answers that are no success: what is told of them, and what is not."""

import io

import pytest

from django_jobs.exceptions import UrlFailed
from django_jobs.handlers.url.http import UrlResponse, excerpt
from django_jobs.handlers.url.request import Request
from django_jobs.redaction import HIDDEN
from tests.unit.handlers.url.conftest import LOOPBACK
from tests.unit.handlers.url.servers import Server

SECRET = "s3cr3t-v4lu3"


def told(body, headers=None):
    request = Request.of({"url": "https://a.test/", "headers": headers or {}})
    return excerpt(UrlResponse(500, body=body.encode()), request)


@pytest.mark.parametrize("status", [199, 300, 304, 400, 401, 404, 418, 429, 500, 503, 599])
def test_every_status_but_2xx_fails_with_it(status, allow, call, monkeypatch):
    output = io.StringIO()
    monkeypatch.setattr("sys.stdout", output)
    body = b"" if status in {199, 304} else b'{"why": "no", "token": "s3cr3t-v4lu3"}'
    head = b"HTTP/1.1 %d Odd\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    with Server(head + body) as server:
        allow(f"http://a.test:{server.port}/*", PRIVATE=[LOOPBACK])
        with pytest.raises(UrlFailed, match=rf"^http://a\.test:\d+ answered {status}$"):
            call(f"http://a.test:{server.port}/hooks/{SECRET}?q={SECRET}")
    assert output.getvalue().startswith(f"{status}\n")
    assert ('"why": "no"' in output.getvalue()) is bool(body)
    assert SECRET not in output.getvalue()


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_every_2xx_is_a_success(status, allow, call):
    with Server(b"HTTP/1.1 %d Fine\r\nContent-Length: 0\r\n\r\n" % status) as server:
        allow(f"http://a.test:{server.port}/*", PRIVATE=[LOOPBACK])
        found = call(f"http://a.test:{server.port}/")
    assert found == {"status": status, "body": "", "truncated": False}


@pytest.mark.parametrize(
    "body",
    [
        f'{{"password": "{SECRET}", "a": 1}}',
        f'{{"a": [{{"api_key": ["{SECRET}"]}}]}}',
        f'{{"cut": true, "access_token": "{SECRET}',
        f"Authorization: Bearer {SECRET}\nmore",
        f"authorization: Basic {SECRET}",
        f"https://b.test/?api-key={SECRET}&x=1",
        f"client_secret_2 = '{SECRET}'",
        f"Set-Cookie: {SECRET}",
    ],
)
def test_what_a_telling_key_holds_is_not_told(body):
    assert HIDDEN in told(body)
    assert SECRET not in told(body)


def test_what_was_sent_as_a_secret_is_not_told_when_it_comes_back():
    headers = {"Authorization": f"Bearer {SECRET}", "X-Api-Key": "another-one", "X-A": "public"}
    found = told(f"you sent {SECRET}, another-one and public; Bearer {SECRET}", headers)
    assert found == f"you sent {HIDDEN}, {HIDDEN} and public; {HIDDEN} {HIDDEN}"
    assert told('{"echo": ["another-one"]}', headers) == f'{{"echo": ["{HIDDEN}"]}}'


def test_short_words_are_not_taken_for_secrets():
    assert told("a b c", {"Authorization": "a b"}) == "a b c"


def test_an_excerpt_is_short_and_says_so():
    assert told("x" * 2000) == "x" * 2000
    assert told("x" * 2001) == "x" * 2000 + " …"


@pytest.mark.parametrize("body", ["[" * 100_000, "password" * 100_000, "token" + " " * 900_000])
def test_a_hostile_body_is_told_at_once(body):
    assert len(told(body)) <= 2_002
