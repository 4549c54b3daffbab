"""Payloads: which ones describe a request, and what is told about the others."""

import pytest

from django_jobs.exceptions import InvalidPayload, UrlRefused
from django_jobs.handlers.base import Handler
from django_jobs.handlers.url import UrlHandler
from django_jobs.handlers.url.request import Request, is_ours

URL = "https://a.test/"


def made(**payload):
    return Request.of({"method": "POST", "url": URL, **payload})


def test_the_smallest_payload_is_a_get():
    request = Request.of({"url": URL})
    assert (request.method, str(request.target)) == ("GET", "https://a.test")
    assert (request.headers, request.body) == ({}, None)


@pytest.mark.parametrize("method", ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "put"])
def test_a_method_is_one_of_seven(method):
    assert made(method=method).method == method.upper()


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        ("grün", "grün".encode(), "text/plain; charset=utf-8"),
        ("", b"", "text/plain; charset=utf-8"),
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        ([], b"[]", "application/json"),
    ],
)
def test_a_body_is_sent_as_what_it_is_unless_a_header_says_otherwise(body, sent, kind):
    assert made(body=body).body == sent
    assert made(body=body).headers == {"Content-Type": kind}
    own = {"content-TYPE": "text/csv"}
    assert made(body=body, headers=own).headers == own


def test_without_a_body_nothing_is_said_about_it():
    assert made(body=None, headers=None).headers == {}


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (None, "of the form"),
        ([], "of the form"),
        (URL, "of the form"),
        ({}, "of the form"),
        ({"url": None}, "of the form"),
        ({"method": "GET"}, "of the form"),
        ({"url": URL, "verify": False}, "knows no 'verify'"),
        ({"url": URL, "proxy": "x", "auth": "y"}, "knows no 'auth', 'proxy'"),
        ({"url": URL, "options": {}}, "knows no 'options'"),
        ({"url": URL, "method": "CONNECT"}, "method is none of DELETE, GET"),
        ({"url": URL, "method": "TRACE"}, "method is none of"),
        ({"url": URL, "method": "GET /"}, "method is none of"),
        ({"url": URL, "method": ""}, "method is none of"),
        ({"url": URL, "method": None}, "method is none of"),
        ({"url": URL, "method": 1}, "method is none of"),
        ({"url": URL, "headers": []}, "headers is a dict"),
        ({"url": URL, "headers": "A: b"}, "headers is a dict"),
        ({"url": URL, "headers": {f"A{n}": "b" for n in range(51)}}, "more than 50 headers"),
        ({"url": URL, "headers": {"A": "b", "a": "c"}}, "two headers"),
        ({"url": URL, "headers": {"X-A": "b", "X_A": "c"}}, "two headers"),
        (
            {"url": URL, "headers": {f"A{n}": "b" * 4096 for n in range(4)}},
            "more than 16,384 characters",
        ),
        ({"url": URL, "method": "GET", "body": ""}, "a GET request has no body"),
        ({"url": URL, "method": "head", "body": {}}, "a HEAD request has no body"),
        ({"url": URL, "method": "POST", "body": 1}, "the body is a text"),
        ({"url": URL, "method": "POST", "body": True}, "the body is a text"),
        ({"url": URL, "method": "POST", "body": "\ud800"}, "lone surrogate"),
        ({"url": URL, "method": "POST", "body": {"a": float("nan")}}, "url: "),
    ],
)
def test_another_payload_is_refused(payload, why):
    with pytest.raises(InvalidPayload, match=why):
        Request.of(payload)


def test_a_payload_of_another_form_is_shown_the_form():
    with pytest.raises(InvalidPayload) as refused:
        Request.of(None)
    assert str(refused.value) == (
        'url takes a payload of the form {"method": "POST", "url": "https://…", '
        '"headers": {}, "body": null}'
    )


def test_headers_have_room_up_to_the_limit():
    full = {f"A{n:02}": "b" for n in range(50)}
    assert made(headers=full).headers == full
    long = {"A": "b" * 4096, "B": "b" * 4096, "C": "b" * 4096, "D": "b" * 4092}
    assert made(headers=long).headers == long


@pytest.mark.parametrize(
    "name", ["", " ", "A B", "A:", "A\r\nB", "A\n", "Ä", "A\0", "-A", "1A", ":path", "A" * 65, 5]
)
def test_what_is_no_name_names_no_header(name):
    with pytest.raises(InvalidPayload, match="a header has a name"):
        made(headers={name: "x"})


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "a ", " a", "a\r\nHost: b", "a\nb", "a\rb", "a\r\n b", "a\tb", "a\0b", "a\x7f"),
        *("ä", "a\u2028b", "a\x85b", "a" * 4097, None, 5, ["a"]),
    ],
    ids=repr,
)
def test_a_value_is_one_line_of_printable_text_and_never_shown(value):
    with pytest.raises(InvalidPayload, match="the value of the header X-A is not") as refused:
        made(headers={"X-A": value})
    assert "Host: b" not in str(refused.value)


@pytest.mark.parametrize("value", ["a", "a b", "!~", "Bearer a.b-c", "a" * 4096])
def test_a_printable_value_is_taken(value):
    assert made(headers={"X-A": value}).headers == {"X-A": value}


OURS = "accept-encoding connection content-length cookie expect host http2-settings keep-alive te"
OURS = f"{OURS} trailer transfer-encoding upgrade proxy-authorization proxy-connection proxy-x"


@pytest.mark.parametrize("name", OURS.split())
def test_what_frames_a_message_is_not_the_payloads_to_say(name):
    for spelt in (name, name.upper(), name.title(), name.replace("-", "_")):
        assert is_ours(spelt)
        with pytest.raises(UrlRefused, match=f"the header {spelt} is set by the handler itself"):
            made(headers={spelt: "x"})


@pytest.mark.parametrize("name", ["Accept", "Content-Type", "X-Host", "Proxy", "Hosts", "Trailers"])
def test_other_headers_are(name):
    assert not is_ours(name)
    assert made(headers={name: "x"}).headers == {name: "x"}


def test_a_payload_is_not_changed_by_being_read():
    headers = {"X-A": "b"}
    made(headers=headers, body="c")
    assert headers == {"X-A": "b"}


def test_secrets_are_not_in_the_repr():
    request = made(headers={"X-A": "secret"}, body="secret")
    assert "secret" not in repr(request)


# ------------------------------------------------------------------- the handler's validate()


def test_the_handler_fits_the_protocol():
    assert isinstance(UrlHandler(), Handler)
    assert UrlHandler.key == "url"


def test_a_payload_is_judged_when_it_is_enqueued_without_a_lookup(allow):
    def asked(name):
        raise AssertionError(name)

    handler = UrlHandler(asked)
    allow("https://a.test/*")
    for check in (handler.validate, handler.admit):
        check({"url": URL})
        for payload in ({"url": "https://b.test/"}, {"url": URL, "method": "PUT"}):
            with pytest.raises(UrlRefused):
                check(payload)
        with pytest.raises(InvalidPayload, match="of the form"):
            check({})


def test_the_origin_decides_who_gets_headers_and_body():
    def origin(url):
        return UrlHandler().destination({"method": "POST", "url": url, "body": "b"})

    assert origin("https://A.test/x?y") == origin("https://a.test:443/") == ("https", "a.test", 443)
    assert len({origin(f"{url}/") for url in ("http://a.test", "https://a.test:8443", URL)}) == 3
