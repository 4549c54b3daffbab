"""Calls that are allowed arrive, and say what they have to: method, headers, body, names."""

import json

import pytest

from django_jobs.exceptions import UrlFailed, UrlRefused
from tests.unit.handlers.url.conftest import LOOPBACK
from tests.unit.handlers.url.servers import OK, Canary, Server, server_context

NAME = "hooks.example.test"


def lines(head):
    first, *rest = head.split("\r\n")
    return first, dict(line.split(": ", 1) for line in rest)


@pytest.fixture
def server():
    with Server() as running:
        yield running


@pytest.fixture
def open_to(allow):
    """Allows a server of this machine, by its name."""

    def to(server, path="/*", scheme="http", **keys):
        keys = {"PRIVATE": [LOOPBACK], "METHODS": ["GET", "POST", "PUT", "HEAD"], **keys}
        allow(f"{scheme}://{NAME}:{server.port}{path}", **keys)
        return f"{scheme}://{NAME}:{server.port}"

    return to


def test_an_allowed_call_arrives_and_its_answer_is_the_result(server, open_to, call):
    base = open_to(server, HEADERS=["X-Trace"])
    found = call(
        f"{base}/hooks/1?x=%20&y", "post", headers={"X-Trace": "a b"}, body={"id": 7, "é": [1]}
    )
    assert found == {"status": 200, "body": "ok", "truncated": False}
    ((head, body),) = server.requests
    first, headers = lines(head)
    assert first == "POST /hooks/1?x=%20&y HTTP/1.1"
    assert headers == {
        "Host": f"{NAME}:{server.port}",
        "Accept": "*/*",
        "User-Agent": "django_jobs",
        "X-Trace": "a b",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "Content-Length": str(len(body)),
    }
    assert json.loads(body) == {"id": 7, "é": [1]}


@pytest.mark.parametrize(
    ("method", "body", "length", "kind"),
    [
        ("GET", None, None, None),
        ("HEAD", None, None, None),
        ("POST", None, "0", None),
        ("PUT", "grün", "5", "text/plain; charset=utf-8"),
        ("POST", "", "0", "text/plain; charset=utf-8"),
        ("PATCH", None, "0", None),
        ("PUT", None, "0", None),
        ("DELETE", None, None, None),
        ("DELETE", "all", "3", "text/plain; charset=utf-8"),
    ],
)
def test_a_body_is_announced_with_its_length(method, body, length, kind, server, open_to, call):
    call(f"{open_to(server, METHODS=[method])}/", method, body=body)
    headers = lines(server.requests[0][0])[1]
    assert headers.get("Content-Length") == length
    assert headers.get("Content-Type") == kind
    assert server.requests[0][1] == (body or "").encode()


def test_no_header_is_sent_twice(server, open_to, call):
    call(f"{open_to(server)}/", "POST", body="b")
    ((head, _),) = server.requests
    names = [line.partition(":")[0].lower() for line in head.split("\r\n")[1:] if line]
    assert sorted(set(names)) == sorted(names)


def test_headers_of_the_payload_replace_our_own_defaults(server, open_to, call):
    own = {"user-agent": "shop", "ACCEPT": "text/plain", "content-type": "text/csv"}
    call(f"{open_to(server)}/", "POST", headers=own, body="a,b")
    headers = lines(server.requests[0][0])[1]
    assert {name: headers[name] for name in own} == own
    assert not {"User-Agent", "Accept", "Content-Type"} & headers.keys()


def test_proxies_of_the_environment_are_not_asked(server, open_to, call, monkeypatch):
    proxy = Canary("127.0.0.1")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv(name.upper(), f"http://127.0.0.1:{proxy.port}")
    assert call(f"{open_to(server)}/")["status"] == 200
    assert proxy.heard() == 0
    proxy.close()


def test_the_next_address_is_tried_when_nobody_is_at_the_first(server, open_to, call):
    base = open_to(server, PRIVATE=["127.0.0.0/8"])
    found = call(f"{base}/", resolve=lambda _name: ["127.0.0.2", "127.0.0.1"])
    assert found["status"] == 200


def test_an_address_in_the_url_is_called_without_a_lookup(server, allow, call):
    def asked(name):
        raise AssertionError(name)

    allow(f"http://127.0.0.1:{server.port}/*", PRIVATE=[LOOPBACK])
    assert call(f"http://127.0.0.1:{server.port}/", resolve=asked)["status"] == 200
    assert lines(server.requests[0][0])[1]["Host"] == f"127.0.0.1:{server.port}"


def test_the_resolver_of_the_machine_knows_localhost(server, allow):
    from django_jobs.handlers.base import JobContext  # noqa: PLC0415 - only this test builds its own
    from django_jobs.handlers.url import UrlHandler  # noqa: PLC0415 - as above

    allow(f"http://localhost:{server.port}/*", PRIVATE=["127.0.0.0/8", "::1/128"])
    payload = {"method": "GET", "url": f"http://localhost:{server.port}/"}
    context = JobContext(id="", payload=payload, name="url", queue="hooks")
    assert UrlHandler().handle(context)["status"] == 200


# ------------------------------------------------------------------------------------ TLS


@pytest.fixture
def secure(authority):
    with Server(OK, context=server_context(authority.certificate_for(NAME))) as running:
        yield running


def test_tls_is_spoken_with_the_name_not_with_the_address(secure, open_to, call, authority):
    base = open_to(secure, scheme="https", CA_FILE=str(authority.file))
    assert call(f"{base}/")["body"] == "ok"
    assert secure.names == [NAME]
    assert lines(secure.requests[0][0])[1]["Host"] == f"{NAME}:{secure.port}"


def test_a_certificate_for_another_name_is_refused_before_anything_is_said(
    authority, open_to, call
):
    context = server_context(authority.certificate_for("elsewhere.test"))
    with Server(OK, context=context) as server:
        base = open_to(server, scheme="https", CA_FILE=str(authority.file))
        with pytest.raises(UrlFailed, match=r"broke off \(SSLCertVerificationError\)"):
            call(f"{base}/", headers={"User-Agent": "secret"})
        assert server.requests == []


def test_a_certificate_of_an_unknown_authority_is_refused(secure, open_to, call):
    with pytest.raises(UrlFailed, match=r"broke off \(SSLCertVerificationError\)"):
        call(f"{open_to(secure, scheme='https')}/")
    assert secure.requests == []


# -------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("url", "more", "why"),
    [
        ("/hooks", {}, "no entry of ALLOWED_URLS allows this call of http"),
        ("/hook/", {}, "no entry of ALLOWED_URLS"),
        ("/Hooks/", {}, "no entry of ALLOWED_URLS"),
        ("/%68ooks/", {}, "no entry of ALLOWED_URLS"),
        ("/hooks/", {"method": "PATCH"}, "its METHODS do not name PATCH"),
        ("/hooks/", {"headers": {"X-Other": "1"}}, "its HEADERS do not name X-Other"),
        ("/hooks/", {"headers": {"Host": "x"}}, "the header Host is set by the handler"),
        ("/hooks/", {"headers": {"host": "x"}}, "the header host is set by the handler"),
    ],
)
def test_a_call_beside_the_rule_is_refused(url, more, why, server, open_to, call):
    base = open_to(server, "/hooks/*")
    with pytest.raises(UrlRefused, match=why):
        call(f"{base}{url}", **more)
    assert server.requests == []


def test_without_a_rule_nothing_is_called(server, settings, call):
    settings.DJANGO_JOBS = {}
    with pytest.raises(UrlRefused):
        call(f"http://{NAME}:{server.port}/")
    assert server.requests == []


# ------------------------------------------------------------------------------- redirects


def redirecting(where, status=302):
    return f"HTTP/1.1 {status} Elsewhere\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()


def to_elsewhere(where, status=302):
    def script(connection, head):
        connection.sendall(OK if " /new " in head else redirecting(where, status))

    return script


def test_a_permitted_redirect_is_followed(open_to, call):
    with Server(to_elsewhere("/new", 307)) as server:
        base = open_to(server, REDIRECTS=1, HEADERS=["Authorization"])
        found = call(f"{base}/", "POST", headers={"Authorization": "Bearer x"}, body="b")
        assert found["body"] == "ok"
        (first, second) = server.requests
        assert second[0].startswith("POST /new HTTP/1.1\r\n")
        assert "Authorization: Bearer x" in second[0]
        assert first[1] == second[1] == b"b"


def test_an_answer_that_leads_nowhere_is_the_result_where_redirects_are_permitted(
    server, open_to, call
):
    assert call(f"{open_to(server, REDIRECTS=1)}/")["body"] == "ok"
    assert len(server.requests) == 1


def test_a_redirect_that_is_not_permitted_fails_with_its_status(open_to, call):
    with Server(to_elsewhere("/new")) as server:
        with pytest.raises(UrlFailed, match="answered 302"):
            call(f"{open_to(server)}/")
        assert len(server.requests) == 1


def test_redirects_are_counted(open_to, call):
    with Server(redirecting("/again")) as server:
        with pytest.raises(UrlFailed, match="answered 302"):
            call(f"{open_to(server, REDIRECTS=3)}/")
        assert len(server.requests) == 4


def test_a_redirect_to_another_host_leaves_credentials_behind(settings, call):
    with Server() as other:
        with Server(redirecting(f"http://other.test:{other.port}/new")) as server:
            keys = {"PRIVATE": [LOOPBACK], "REDIRECTS": 1, "HEADERS": ["Authorization"]}
            urls = [f"http://{NAME}:{server.port}/*", f"http://other.test:{other.port}/new"]
            settings.DJANGO_JOBS = {"ALLOWED_URLS": [{"URL": url, **keys} for url in urls]}
            secret = {"Authorization": "Bearer x", "User-Agent": "shop"}
            call(urls[0][:-1], headers=secret)
        ((head, _),) = other.requests
        assert lines(head)[1] == {
            "Host": f"other.test:{other.port}",
            "Accept": "*/*",
            "User-Agent": "django_jobs",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }


@pytest.mark.parametrize(
    "where",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "//127.0.0.1:{port}/",
        "http://[::1]:{port}/",
        "http://2130706433:{port}/",
        "http://other.test:{port}/",
        "http://hooks.example.test@127.0.0.1:{port}/",
        "file:///etc/passwd",
        "http://127.0.0.1:{port}\\@hooks.example.test/",
    ],
)
def test_a_redirect_to_where_no_rule_leads_is_refused(where, open_to, call, canary):
    with Server(redirecting(where.format(port=canary.port))) as server:
        with pytest.raises(UrlRefused):
            call(f"{open_to(server, REDIRECTS=3)}/")
        assert canary.heard() == 0


def test_the_name_is_resolved_and_checked_again_for_a_redirect(open_to, call, canary):
    answers = iter([["127.0.0.1"], ["127.0.0.1", "10.0.0.1"]])
    with Server(to_elsewhere("/new")) as server:
        with pytest.raises(UrlRefused, match="leads to an address"):
            call(f"{open_to(server, REDIRECTS=1)}/", resolve=lambda _name: next(answers))
        assert len(server.requests) == 1
