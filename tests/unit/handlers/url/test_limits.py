"""What a server may do to a worker: nothing. Sizes and time are bounded, and all else fails."""

import gzip
import socket
import threading
import time
import traceback

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from django_jobs.exceptions import UrlFailed
from django_jobs.handlers.url import http
from django_jobs.handlers.url.http import require_peer
from django_jobs.handlers.url.url import Host
from tests.unit.handlers.url.conftest import LOOPBACK
from tests.unit.handlers.url.servers import Server, server_context

CAP = 10_000
PROMPT = 5.0
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def answered(allow, call):
    """What comes of a call that a server answers so."""

    def run(script, *, method="GET", context=None, payload=None, **keys):
        with Server(script, context=context) as server:
            scheme = "https" if context else "http"
            keys = {"PRIVATE": [LOOPBACK], "MAX_BYTES": CAP, **keys}
            allow(f"{scheme}://api.test:{server.port}/*", **keys)
            return call(f"{scheme}://api.test:{server.port}/", method, **(payload or {}))

    return run


def plain(body, head=b""):
    return HEAD + head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(*chunks):
    parts = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return CHUNKED + parts + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [0, 1, CAP - 1, CAP])
@pytest.mark.parametrize("framed", [plain, chunked, lambda body: HEAD + b"\r\n" + body])
def test_a_body_up_to_the_cap_is_kept_whole(size, framed, answered):
    found = answered(framed(b"x" * size) if size else plain(b""))
    assert found == {"status": 200, "body": "x" * size, "truncated": False}


@pytest.mark.parametrize("framed", [plain, chunked, lambda body: HEAD + b"\r\n" + body])
def test_a_body_may_be_longer_than_what_is_accepted_of_headers(framed, answered):
    found = answered(framed(b"x" * 4 * http.HEADER_BYTES), MAX_BYTES=4 * http.HEADER_BYTES)
    assert found == {"status": 200, "body": "x" * 4 * http.HEADER_BYTES, "truncated": False}


@pytest.mark.parametrize("more", [1, 2, CAP])
@pytest.mark.parametrize("framed", [plain, chunked, lambda body: HEAD + b"\r\n" + body])
def test_a_longer_body_is_cut_and_said_to_be(framed, more, answered):
    found = answered(framed(b"x" * CAP + b"y" * more))
    assert found == {"status": 200, "body": "x" * CAP, "truncated": True}


@pytest.mark.parametrize("piece", [b"10000\r\n" + b"x" * 65536 + b"\r\n", b"x" * 65536])
def test_a_body_without_end_is_cut(piece, answered):
    def endless(connection, _head):
        kind = b"Transfer-Encoding: chunked\r\n\r\n" if piece[0] != piece[1] else b"\r\n"
        connection.sendall(HEAD + kind)
        while True:
            connection.sendall(piece)

    assert answered(endless) == {"status": 200, "body": "x" * CAP, "truncated": True}


def test_nothing_is_decompressed(answered):
    bomb = gzip.compress(b"\0" * 5_000_000)
    assert len(bomb) < CAP
    found = answered(plain(bomb, b"Content-Encoding: gzip\r\n"))
    assert len(found["body"]) <= len(bomb)
    assert not found["truncated"]


def test_a_cap_of_nothing_keeps_the_status_alone(answered):
    assert answered(plain(b"x"), MAX_BYTES=0) == {"status": 200, "body": "", "truncated": True}


@pytest.mark.parametrize(
    ("content_type", "raw", "text"),
    [
        (b"text/plain; charset=iso-8859-1", b"gr\xfcn", "grün"),
        (b'text/plain; charset="Windows-1252"', b"\x80", "€"),
        (b"text/plain", "grün".encode(), "grün"),
        (b"text/plain; charset=utf-7", b"+AOk-", "+AOk-"),
        (b"text/plain; charset=", b"\xff", "\ufffd"),
    ],
)
def test_a_body_is_text(content_type, raw, text, answered):
    assert answered(plain(raw, b"Content-Type: %s\r\n" % content_type))["body"] == text


# ----------------------------------------------------------------------------- broken servers


def test_bodies_that_break_off_fail(answered):
    for script in (
        HEAD + b"Content-Length: 10\r\n\r\nonly5",
        HEAD + b"Content-Length: %d\r\n\r\n" % (2 * CAP) + b"x" * CAP,
        CHUNKED + b"5\r\nhel",
        CHUNKED + b"zz\r\nhello\r\n",
    ):
        with pytest.raises(UrlFailed, match=r"broke off \(IncompleteRead\)"):
            answered(script)


ENDLESS = 100_000


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (b"", r"broke off \(RemoteDisconnected\)"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", r"broke off \(BadStatusLine\)"),
        (b"HTTP/1.1 200 " + b"x" * 70_000, r"more bytes around its body|LineTooLong"),
        (HEAD + b"A: " + b"x" * 70_000 + b"\r\n\r\n", r"more bytes around its body|LineTooLong"),
        (HEAD + b"A: b\r\n" * 101 + b"\r\n", r"broke off \(HTTPException\)"),
        (HEAD + (b"A: " + b"b" * 60_000 + b"\r\n") * 2 + b"\r\n", "more bytes around its body"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * ENDLESS, "more bytes around its body"),
        (
            CHUNKED + (b"1;" + b"e" * 9_000 + b"\r\nx\r\n") * 99,
            "more bytes around its body",
        ),
        (
            CHUNKED + b"-5\r\n" + b"x" * 1_000_000,
            r"more bytes around its body|broke off",
        ),
        (CHUNKED + b"-1\r\n" + b"x" * 1_000_000, "more bytes around its body"),
        (
            CHUNKED + b"0\r\n" + b"T: x\r\n" * ENDLESS,
            "more bytes around its body",
        ),
    ],
    ids=range(11),
)
def test_an_answer_that_is_none_fails(script, why, answered):
    with pytest.raises(UrlFailed, match=why):
        answered(script)


@pytest.fixture
def talker(allow):
    with Server() as server:
        allow(f"http://api.test:{server.port}/*", PRIVATE=[LOOPBACK], TIMEOUT=5)
        yield server


@given(said=st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(HEAD.__add__)))
@effort(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_a_server_says_is_an_answer_or_a_failure(said, talker, call):
    talker.script = said
    try:
        found = call(f"http://api.test:{talker.port}/")
    except UrlFailed:
        return
    assert 200 <= found["status"] < 300


# -------------------------------------------------------------------------------------- time


def drip(data, times=100_000):
    def script(connection, _head):
        for piece in data[:-1]:
            connection.sendall(piece)
        for _ in range(times):
            connection.sendall(data[-1])
            time.sleep(0.02)  # the server's pace is what is tested

    return script


@pytest.mark.parametrize(
    "script",
    [
        drip([b"H"]),
        drip([HEAD, b"A"]),
        drip([HEAD, b"A: b\r\n"], times=90),
        drip([HEAD + b"Content-Length: 9000\r\n\r\n", b"x"]),
        drip([CHUNKED, b"1\r\nx\r\n"]),
        drip([b"HTTP/1.1 100 Continue\r\n\r\n"]),
        lambda connection, _head: connection.recv(1),
    ],
    ids=["status", "header", "headers", "body", "chunks", "continue", "silent"],
)
def test_a_server_that_drips_or_is_silent_is_left_when_time_is_up(script, answered):
    began = time.monotonic()
    with pytest.raises(UrlFailed, match=r"was not done after 0\.5 seconds"):
        answered(script, TIMEOUT=0.5)
    assert time.monotonic() - began < PROMPT


def test_a_server_that_drips_inside_of_tls_is_left_as_well(answered, authority):
    context = server_context(authority.certificate_for("api.test"))
    with pytest.raises(UrlFailed, match="was not done after"):
        answered(drip([HEAD, b"A"]), context=context, TIMEOUT=0.5, CA_FILE=str(authority.file))


def test_a_server_that_pauses_for_too_long_is_left_before_time_is_up(answered, monkeypatch):
    monkeypatch.setattr(http, "READ_SECONDS", 0.2)
    with pytest.raises(UrlFailed, match=r"^http://api\.test:\d+ did not answer in time$"):
        answered(lambda connection, _head: connection.recv(1))


def test_a_server_that_never_greets_is_left(allow, call):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        allow(f"https://api.test:{port}/*", PRIVATE=[LOOPBACK], TIMEOUT=0.3)
        with pytest.raises(UrlFailed, match="was not done after"):
            call(f"https://api.test:{port}/")


def test_a_server_that_does_not_read_is_left(allow, call):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        allow(f"http://api.test:{port}/*", PRIVATE=[LOOPBACK], TIMEOUT=0.3)
        with pytest.raises(UrlFailed, match="was not done after"):
            call(f"http://api.test:{port}/", "POST", body="x" * 20_000_000)


def test_redirects_share_one_deadline(answered):
    def slowly(connection, _head):
        time.sleep(0.2)  # the server's pace is what is tested
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")

    with pytest.raises(UrlFailed, match="was not done after"):
        answered(slowly, REDIRECTS=3, TIMEOUT=0.5)


def test_the_end_of_the_attempt_is_the_end_of_the_call(allow, call):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        allow(f"http://api.test:{port}/*", PRIVATE=[LOOPBACK])
        began = time.monotonic()
        with pytest.raises(UrlFailed, match=r"was not done after 0\.3 seconds"):
            call(f"http://api.test:{port}/", timeout=0.3)
        assert time.monotonic() - began < PROMPT


def test_of_the_ends_of_a_call_and_of_its_attempt_the_earlier_counts():
    now = time.monotonic()
    assert http.Deadline(30.0, timeout=60.0, ends_at=now + 60.0).left() <= 30.0
    assert http.Deadline(60.0, timeout=30.0, ends_at=now + 30.0).left() <= 30.0


def test_a_resolver_that_does_not_answer_is_left(allow, call):
    asked = threading.Event()
    allow("http://api.test/*", TIMEOUT=0.3)
    with pytest.raises(UrlFailed, match="was not resolved in time"):
        call("http://api.test/", resolve=lambda _name: asked.wait(PROMPT) and [])
    asked.set()


def test_a_lookup_keeps_no_process_from_ending(allow, call):
    threads = []
    allow("http://api.test/*")
    with pytest.raises(UrlFailed, match="has no address"):
        call(
            "http://api.test/",
            resolve=lambda _name: threads.append(threading.current_thread()) or [],
        )
    assert [(thread.name, thread.daemon) for thread in threads] == [("django_jobs-lookup", True)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (OSError("10.0.0.53 refused"), "cannot be resolved"),
        (UnicodeError("label too long"), "cannot be resolved"),
        ([], "has no address"),
        (["not an address"], "something that is no address"),
    ],
)
def test_a_name_that_leads_nowhere_fails(answer, why, allow, call):
    def resolve(_name):
        if isinstance(answer, Exception):
            raise answer
        return answer

    allow("http://api.test/*")
    with pytest.raises(UrlFailed, match=why) as failed:
        call("http://api.test/", resolve=resolve)
    assert "10.0.0.53" not in "".join(traceback.format_exception(failed.value))


def test_a_closed_port_is_told_without_the_address(allow, call):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    allow(f"http://api.test:{port}/*", PRIVATE=[LOOPBACK])
    with pytest.raises(UrlFailed, match=r"cannot be reached \(ConnectionRefusedError\)") as failed:
        call(f"http://api.test:{port}/")
    assert "127.0.0.1" not in "".join(traceback.format_exception(failed.value))


def test_the_other_end_has_the_address_that_was_checked():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        require_peer(client, Host.parse("127.0.0.1").address)
        with pytest.raises(UrlFailed, match="leads elsewhere"):
            require_peer(client, Host.parse("127.0.0.2").address)
