"""The steps of a connection: how long each may take, where it leads, and that it is closed."""

import contextlib
import socket
import ssl
from types import SimpleNamespace

import pytest

from django_jobs.exceptions import UrlFailed
from django_jobs.handlers.url import http as connecting
from django_jobs.handlers.url.http import Deadline, Wire
from tests.unit.handlers.url.servers import OK, Server, server_context

NAME = "api.test"
LONG = 600.0  # more than any step may take


class Watched(socket.socket):
    """A socket that tells what was done with it."""

    made = ()

    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self.timeouts = []
        Watched.made.append(self)

    def settimeout(self, seconds):
        self.timeouts.append(round(seconds))
        super().settimeout(seconds)


class Misled(Watched):
    """A network that leads to this machine whatever address is asked for."""

    def connect(self, where):
        super().connect(("127.0.0.1", where[1]))


class Nowhere(Watched):
    def connect(self, where):
        raise ConnectionRefusedError(where)


@pytest.fixture
def watched(monkeypatch):
    """Has the sockets of calls made of a class, and kept in the order of making."""

    def of(kind=Watched):
        made = []
        monkeypatch.setattr(Watched, "made", made)
        ours = SimpleNamespace(**{**vars(socket), "socket": kind})  # not those of the server
        monkeypatch.setattr(connecting, "socket", ours)
        return made

    return of


@pytest.fixture
def secure(authority):
    with Server(OK, context=server_context(authority.certificate_for(NAME))) as running:
        yield running


@pytest.fixture
def https(allow, authority):
    def base(server, ca_file=authority.file):
        keys = {"PRIVATE": ["127.0.0.0/8"], "CA_FILE": str(ca_file), "TIMEOUT": LONG}
        allow(f"https://{NAME}:{server.port}/*", **keys)
        return f"https://{NAME}:{server.port}/"

    return base


@pytest.fixture
def http(allow):
    def base(server):
        allow(f"http://{NAME}:{server.port}/*", PRIVATE=["127.0.0.0/8", "::1/128"])
        return f"http://{NAME}:{server.port}/"

    return base


@pytest.mark.parametrize(("before", "reached"), [(0, True), (3, True), (4, False), (9, False)])
def test_four_addresses_are_tried_and_no_fifth(before, reached, http, call):
    addresses = [f"127.0.0.{number}" for number in range(2, 2 + before)] + ["127.0.0.1"]
    with Server() as server:
        expected = (
            contextlib.nullcontext()
            if reached
            else pytest.raises(UrlFailed, match=r"cannot be reached \(ConnectionRefusedError\)")
        )
        with expected:
            call(http(server), resolve=lambda _name: addresses)
        assert len(server.requests) == reached


def test_each_address_is_called_in_its_own_family(http, call, watched):
    with Server() as server:
        url = http(server)
        made = watched(Nowhere)
        with pytest.raises(UrlFailed, match="cannot be reached"):
            call(url, resolve=lambda _name: ["127.0.0.1", "::1"])
    assert [sock.family for sock in made] == [socket.AF_INET, socket.AF_INET6]
    assert [sock.fileno() for sock in made] == [-1, -1]


def test_nothing_is_said_to_an_end_that_is_not_the_address_that_was_checked(http, call, watched):
    with Server() as server:
        url = http(server)
        made = watched(Misled)
        with pytest.raises(UrlFailed, match="leads elsewhere"):
            call(url, resolve=lambda _name: ["127.0.0.2"])
        assert made[0].fileno() == -1
    assert not any(head for head, _ in server.requests)


def test_connecting_and_greeting_have_a_limit_each(secure, https, call, watched, monkeypatch):
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 41.0)
    monkeypatch.setattr(connecting, "READ_SECONDS", 42.0)
    url = https(secure)
    made = watched()
    assert call(url)["status"] == 200
    assert made[0].timeouts[:2] == [41, 42]


def test_a_call_whose_authority_has_gone_leaves_no_socket_open(
    secure, https, call, watched, authority, tmp_path
):
    file = tmp_path / "authority.pem"
    file.write_bytes(authority.file.read_bytes())
    url = https(secure, file)
    made = watched()
    assert call(url)["status"] == 200
    file.unlink()
    with pytest.raises(UrlFailed):
        call(url)
    assert [sock.fileno() for sock in made] == [-1, -1]


def test_a_machine_that_allows_old_tls_does_not_make_the_handler_speak_it(
    secure, https, call, monkeypatch
):
    contexts = []
    usual = ssl.create_default_context

    def lax(**keys):
        contexts.append(usual(**keys))
        contexts[0].minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        return contexts[0]

    monkeypatch.setattr(connecting.ssl, "create_default_context", lax)
    assert call(https(secure))["status"] == 200
    assert contexts[0].minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_write_ends_with_the_deadline_and_a_read_with_its_own_limit(pair):
    ours, theirs = pair
    ours.settimeout(LONG)
    wire = Wire(ours, Deadline(300.0), 9)
    wire.sendall(b"hello")
    assert 290 < ours.gettimeout() <= 300
    theirs.sendall(b"hi")
    assert wire.makefile("rb").read(2) == b"hi"
    assert ours.gettimeout() == connecting.READ_SECONDS


@pytest.mark.parametrize("allowance", [0, 1, 5])
def test_what_is_allowed_comes_in_and_not_a_byte_more(allowance, pair):
    ours, theirs = pair
    wire = Wire(ours, Deadline(5.0), allowance)
    if allowance:
        theirs.sendall(b"x" * allowance)
        assert wire.receive_into(bytearray(99)) == allowance
    theirs.sendall(b"x")
    with pytest.raises(UrlFailed, match="more bytes"):
        wire.receive_into(bytearray(99))
