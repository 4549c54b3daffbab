"""Redirects: where they lead, and what goes along."""

import pytest

from django_jobs.exceptions import UrlRefused
from django_jobs.handlers.url.handler import is_redirect, redirected
from django_jobs.handlers.url.http import UrlResponse
from django_jobs.handlers.url.request import Request

START = "https://a.test/x/y?z"
HEADERS = {"Authorization": "Bearer x", "Content-Language": "de", "X-A": "1"}


def after(location, status=302, method="GET", url=START, body=None, headers=None):
    payload = {"method": method, "url": url, "body": body, "headers": headers or {}}
    locations = (location,) if isinstance(location, str) else location
    return redirected(Request.of(payload), UrlResponse(status, locations=locations))


@pytest.mark.parametrize(
    ("status", "locations", "is_one"),
    [(code, ("/",), True) for code in (301, 302, 303, 307, 308)]
    + [(code, ("/",), False) for code in (200, 201, 300, 304, 305, 306, 309, 401)]
    + [(302, (), False)],
)
def test_five_statuses_with_a_location_are_redirects(status, locations, is_one):
    assert is_redirect(UrlResponse(status, locations=locations)) is is_one


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "https://a.test/b"),
        ("b", "https://a.test/x/b"),
        ("?q=1", "https://a.test/x/y?q=1"),
        ("../b", "https://a.test/b"),
        ("/!~", "https://a.test/!~"),
        ("/b#fragment", "https://a.test/b"),
        ("https://b.test/c?d", "https://b.test/c?d"),
        ("HTTPS://B.test:8443", "https://b.test:8443/"),
        ("//b.test/c", "https://b.test/c"),
        ("/" + "x" * 2033, "https://a.test/" + "x" * 2033),
    ],
)
def test_a_location_is_read_as_seen_from_where_it_was_said(location, url):
    assert after(location).target.url == url


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://a.test/", "redirects to plain http"),
        ("//a@b.test/", "user name"),
        ("javascript:alert(1)", "does not begin with http"),
        ("https://127.1/", "a number"),
        ("https://b.test/a b", "something that is no url"),
        ("https://b.test/\t", "something that is no url"),
        ("https://b.test/ü", "something that is no url"),
        ("https://b.test/\x7f", "something that is no url"),
        ("https://[b/", "something that is no url"),
        ("https://b.test\\c.test/", "name or an address"),
        ("/%2e%2e/b", "lead elsewhere"),
        ("/" + "x" * 2034, "longer than"),
        (("/b", "/c"), "several places"),
    ],
)
def test_any_other_location_is_refused_and_not_quoted(location, why):
    with pytest.raises(UrlRefused, match=why) as refused:
        after(location)
    assert str(refused.value).startswith("https://a.test redirects")
    assert "b.test" not in str(refused.value)


def test_plain_http_may_lead_to_https():
    assert after("https://a.test/", url="http://a.test/").target.scheme == "https"
    assert after("/b", url="http://a.test/").target.scheme == "http"


@pytest.mark.parametrize(
    ("method", "status", "becomes"),
    [
        *(("GET", code, "GET") for code in (301, 302, 303, 307, 308)),
        *(("HEAD", code, "HEAD") for code in (301, 302, 303, 307, 308)),
        *(("POST", code, "GET") for code in (301, 302, 303)),
        *(("POST", code, "POST") for code in (307, 308)),
        *(("PUT", code, "PUT") for code in (301, 302, 307, 308)),
        ("PUT", 303, "GET"),
        ("DELETE", 303, "GET"),
        ("DELETE", 301, "DELETE"),
    ],
)
def test_a_method_is_kept_or_becomes_get(method, status, becomes):
    body = None if method in {"GET", "HEAD"} else "b"
    request = after("/b", status, method, body=body, headers=HEADERS)
    assert request.method == becomes
    if becomes == method:
        assert request.body == (body and b"b")
        assert request.headers.items() >= HEADERS.items()
    else:
        assert request.body is None
        assert request.headers == {"Authorization": "Bearer x", "X-A": "1"}


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("https://b.test/", START),
        ("https://a.test:8443/", START),
        ("https://a.test/", "http://a.test/"),
    ],
)
def test_another_origin_gets_no_headers_and_no_body(location, url):
    assert after(location, url=url, headers=HEADERS).headers == {}
    assert after(location, 303, "POST", url, "b", HEADERS).headers == {}
    with pytest.raises(UrlRefused, match=r"redirects a body to https://.*; it is not sent on"):
        after(location, 307, "POST", url, "b")


def test_the_same_origin_gets_them_again():
    assert after("https://A.test:443/b", headers=HEADERS).headers == HEADERS
